"""Everything the engine knows, as one value."""

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
    """All requests and who holds which page.

    `running` (they hold pages) and `waiting` are in order of arrival, every running one older than every waiting one.
    `finished` is looked up by id, `ended` are their ids, newest first; `live` finds the arrival number of an id that waits
    or runs. `arrivals` counts the requests added, `line` names the device history the next plan relies on, `releases` are
    the arrival numbers of those that gave their pages back since the last plan.
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
        """All requests, each with whether it waits."""
        yield from ((sequence, False) for sequence in self.running)
        yield from ((sequence, True) for sequence in self.waiting)
        yield from ((sequence, False) for sequence in self.finished.values())

    @property
    def done(self) -> bool:
        """Whether no request waits or runs."""
        return not self.running and not self.waiting

    def find(self, request_id: int) -> Sequence | None:
        """The sequence of a request, live or finished; None when there is none. Costs the number of running requests."""
        arrival = self.live.get(request_id)
        return self.finished.get(request_id) if arrival is None else self.sequence(arrival)

    def filed(self, sequences: Iterable[Sequence]) -> "tuple[HashTrieMap[int, Sequence], List[int], HashTrieMap[int, int]]":
        """`finished`, `ended` and `live` once `sequences` have ended."""
        finished, ended, live = self.finished, self.ended, self.live
        for sequence in sequences:
            request_id = sequence.goal.request.id
            finished, ended = finished.insert(request_id, sequence), ended.push_front(request_id)
            if request_id in live:
                live = live.remove(request_id)
        return finished, ended, live

    def sequence(self, arrival: int) -> Sequence | None:
        """The live sequence with this arrival number; None when there is none. Costs the number of running requests."""
        for sequence in self.running:
            if sequence.goal.request.arrival == arrival:
                return sequence
        return self.waiting.get(arrival)
