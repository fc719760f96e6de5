"""The complete state of the engine, as one value."""

from collections.abc import Iterable, Iterator

from rpds import HashTrieMap, List

from .cache import Cache
from .plan import START_LINE
from .queue import WaitingQueue
from .sequence import Sequence, Strategy
from .spec import Config
from .values import value


@value
class State:
    """All requests, and the ownership of pages.

    `running` (with pages) and `waiting` are in order of arrival, all running before all waiting.
    `finished` is by id; `ended` lists these ids, newest first. `live` maps the ids of other
    requests to arrival numbers. `arrivals` counts the requests added. `line` is the hash of the
    required device history. `releases` are arrival numbers that released pages since the last plan.
    """

    config: Config
    strategy: Strategy
    cache: Cache
    waiting: WaitingQueue = WaitingQueue()
    running: tuple[Sequence, ...] = ()
    finished: "HashTrieMap[int, Sequence]" = HashTrieMap()
    ended: "List[int]" = List([])
    live: "HashTrieMap[int, int]" = HashTrieMap()
    step: int = 0
    line: int = START_LINE
    arrivals: int = 0
    releases: tuple[int, ...] = ()

    def sequences(self) -> Iterator[tuple[Sequence, bool]]:
        """Yield all sequences, each with whether it is waiting."""
        yield from ((sequence, False) for sequence in self.running)
        yield from ((sequence, True) for sequence in self.waiting)
        yield from ((sequence, False) for sequence in self.finished.values())

    @property
    def done(self) -> bool:
        """Whether no request is waiting or running."""
        return not self.running and not self.waiting

    def find(self, request_id: int) -> Sequence | None:
        """Return the sequence of a request, or None. Linear in the running requests."""
        arrival = self.live.get(request_id)
        return self.finished.get(request_id) if arrival is None else self.sequence(arrival)

    def filed(self, sequences: Iterable[Sequence]) -> "tuple[HashTrieMap[int, Sequence], List[int], HashTrieMap[int, int]]":
        """Return `finished`, `ended` and `live` after `sequences` have ended."""
        finished, ended, live = self.finished, self.ended, self.live
        for sequence in sequences:
            request_id = sequence.goal.request.id
            finished, ended = finished.insert(request_id, sequence), ended.push_front(request_id)
            if request_id in live:
                live = live.remove(request_id)
        return finished, ended, live

    def sequence(self, arrival: int) -> Sequence | None:
        """Return the live sequence with this arrival number; None if there is none."""
        for sequence in self.running:
            if sequence.goal.request.arrival == arrival:
                return sequence
        return self.waiting.get(arrival)
