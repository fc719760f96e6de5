"""The waiting queue of sequences, as a persistent value whose calls take constant time."""

from collections.abc import Iterable, Iterator

from rpds import HashTrieMap

from .sequence import SequenceState
from .values import value

_EMPTY: "HashTrieMap[int, SequenceState]" = HashTrieMap()


@value
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
        return next((sequence for sequence in self.front if sequence.request_spec.request.seq_id == seq_id), None)

    def push(self, sequence: SequenceState) -> "WaitingQueue":
        """Return the queue with a new sequence at its end.

        Args:
            sequence: A sequence that is younger than all others.
        """
        seq_id = sequence.request_spec.request.seq_id
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
        front = tuple([sequence for sequence in self.front if sequence.request_spec.request.seq_id not in gone])
        back, head = self.back, self.head
        for seq_id in sorted(gone):
            if seq_id in back:
                back = back.remove(seq_id)
                if seq_id == head:
                    # The head never moves back, so skipping numbers costs amortized O(1) per push.
                    while head < self.tail and head not in back:
                        head += 1
        return WaitingQueue(front, back, head, self.tail)
