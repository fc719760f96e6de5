"""The complete state of the engine as one value, and the queue of its waiting requests."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rpds import HashTrieMap, List

from .cache import Cache
from .plan import EMPTY_CACHE
from .sequence import SequenceState, Strategy
from .spec import Config

_EMPTY: "HashTrieMap[int, SequenceState]" = HashTrieMap()


@dataclass(frozen=True, slots=True)
class WaitingQueue:
    """Sequences without pages, in order of their sequence numbers."""

    front: tuple[SequenceState, ...] = ()
    """Preempted sequences, all older than those in `back`."""
    back: "HashTrieMap[int, SequenceState]" = _EMPTY
    """The other sequences by sequence number."""
    head: int = 0
    """No sequence number in `back` is lower."""
    tail: int = 0
    """All sequence numbers in `back` are lower."""

    def __len__(self) -> int:
        return len(self.front) + len(self.back)

    def __iter__(self) -> Iterator[SequenceState]:
        """Yield the sequences, oldest first."""
        yield from self.front
        for seq_id in range(self.head, self.tail):
            sequence = self.back.get(seq_id)
            if sequence is not None:
                yield sequence

    def get(self, seq_id: int) -> SequenceState | None:
        """Return the sequence with this sequence number; None if it is not waiting.

        Args:
            seq_id: A sequence number.
        """
        sequence = self.back.get(seq_id)
        if sequence is not None:
            return sequence
        return next((sequence for sequence in self.front if sequence.request.seq_id == seq_id), None)

    def push(self, sequence: SequenceState) -> "WaitingQueue":
        """Return the queue with a new sequence at its end.

        Args:
            sequence: A sequence that is younger than all others.
        """
        seq_id = sequence.request.seq_id
        head = self.head if self.back else seq_id
        return WaitingQueue(self.front, self.back.insert(seq_id, sequence), head, seq_id + 1)

    def push_front(self, sequences: Iterable[SequenceState]) -> "WaitingQueue":
        """Return the queue with preempted sequences at its front.

        Args:
            sequences: Sequences that are older than all others, in order of sequence number.
        """
        return WaitingQueue((*sequences, *self.front), self.back, self.head, self.tail)

    def remove(self, seq_ids: Iterable[int]) -> "WaitingQueue":
        """Return the queue without some sequences.

        Args:
            seq_ids: Sequence numbers to remove; unknown ones are ignored.
        """
        gone = set(seq_ids)
        front = tuple([sequence for sequence in self.front if sequence.request.seq_id not in gone])
        back, head = self.back, self.head
        for seq_id in sorted(gone):
            if seq_id in back:
                back = back.remove(seq_id)
                if seq_id == head:
                    # The head never moves back, so skipping numbers costs amortized O(1) per push.
                    while head < self.tail and head not in back:
                        head += 1
        return WaitingQueue(front, back, head, self.tail)


@dataclass(frozen=True, slots=True)
class State:
    """All requests, and the ownership of pages."""

    config: Config
    """Limits of the engine, and the facts of its model."""
    strategy: Strategy
    """Strategy of requests that set no options."""
    cache: Cache
    """Ownership of the pages, and the index of cached prefixes."""
    waiting: WaitingQueue = WaitingQueue()
    """Sequences without pages, in order of sequence number; all come after `running`."""
    running: tuple[SequenceState, ...] = ()
    """Sequences with pages, in order of sequence number."""
    finished: "HashTrieMap[int, SequenceState]" = HashTrieMap()
    """Finished sequences by request id."""
    ended: "List[int]" = List([])
    """Ids of the finished requests, newest first."""
    live: "HashTrieMap[int, int]" = HashTrieMap()
    """Sequence numbers of the unfinished requests by request id."""
    step: int = 0
    """Number of forward passes so far."""
    cache_digest: int = EMPTY_CACHE
    """Cache digest of the KV cache that the next plan needs."""
    next_seq_id: int = 0
    """Sequence number of the next request."""
    releases: tuple[int, ...] = ()
    """Sequence numbers that released their pages since the last plan."""

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
        """Return the sequence of a request, or None. Linear in the running requests.

        Args:
            request_id: The caller's id of the request.
        """
        seq_id = self.live.get(request_id)
        return self.finished.get(request_id) if seq_id is None else self.sequence(seq_id)

    def filed(
        self, sequences: Iterable[SequenceState]
    ) -> "tuple[HashTrieMap[int, SequenceState], List[int], HashTrieMap[int, int]]":
        """Return `finished`, `ended` and `live` after sequences have ended.

        Args:
            sequences: The sequences that have ended, oldest first.
        """
        finished, ended, live = self.finished, self.ended, self.live
        for sequence in sequences:
            request_id = sequence.request.id
            finished, ended = finished.insert(request_id, sequence), ended.push_front(request_id)
            if request_id in live:
                live = live.remove(request_id)
        return finished, ended, live

    def sequence(self, seq_id: int) -> SequenceState | None:
        """Return the live sequence with this sequence number; None if there is none.

        Args:
            seq_id: A sequence number.
        """
        for sequence in self.running:
            if sequence.request.seq_id == seq_id:
                return sequence
        return self.waiting.get(seq_id)
