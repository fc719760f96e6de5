"""The complete state of the engine, as one value."""

from collections.abc import Iterable, Iterator

from rpds import HashTrieMap, List

from .cache import Cache
from .plan import EMPTY_CACHE
from .queue import WaitingQueue
from .sequence import SequenceState, Strategy
from .spec import Config
from .values import value


@value
class State:
    """All requests, and the ownership of pages.

    `running` (with pages) and `waiting` are in the order of their sequence numbers, all running
    before all waiting. `finished` is by id; `ended` lists these ids, newest first. `live` maps the
    ids of other requests to sequence numbers. `next_seq_id` is the number of the next request.
    `cache_digest` is that of the KV cache that the next plan needs. `releases` are the sequence
    numbers that released pages since the last plan.
    """

    config: Config
    strategy: Strategy
    cache: Cache
    waiting: WaitingQueue = WaitingQueue()
    running: tuple[SequenceState, ...] = ()
    finished: "HashTrieMap[int, SequenceState]" = HashTrieMap()
    ended: "List[int]" = List([])
    live: "HashTrieMap[int, int]" = HashTrieMap()
    step: int = 0
    cache_digest: int = EMPTY_CACHE
    next_seq_id: int = 0
    releases: tuple[int, ...] = ()

    def sequences(self) -> Iterator[tuple[SequenceState, bool]]:
        """Yield all sequences, each with whether it is waiting."""
        yield from ((sequence, False) for sequence in self.running)
        yield from ((sequence, True) for sequence in self.waiting)
        yield from ((sequence, False) for sequence in self.finished.values())

    @property
    def done(self) -> bool:
        """Whether no request is waiting or running."""
        return not self.running and not self.waiting

    def find(self, request_id: int) -> SequenceState | None:
        """Return the sequence of a request, or None. Linear in the running requests."""
        seq_id = self.live.get(request_id)
        return self.finished.get(request_id) if seq_id is None else self.sequence(seq_id)

    def filed(
        self, sequences: Iterable[SequenceState]
    ) -> "tuple[HashTrieMap[int, SequenceState], List[int], HashTrieMap[int, int]]":
        """Return `finished`, `ended` and `live` after `sequences` have ended."""
        finished, ended, live = self.finished, self.ended, self.live
        for sequence in sequences:
            request_id = sequence.request_spec.request.id
            finished, ended = finished.insert(request_id, sequence), ended.push_front(request_id)
            if request_id in live:
                live = live.remove(request_id)
        return finished, ended, live

    def sequence(self, seq_id: int) -> SequenceState | None:
        """Return the live sequence with this sequence number; None if there is none."""
        for sequence in self.running:
            if sequence.request_spec.request.seq_id == seq_id:
                return sequence
        return self.waiting.get(seq_id)
