"""The waiting queue of sequences, as a persistent value whose calls take constant time."""

from collections.abc import Iterable, Iterator

from rpds import HashTrieMap

from .sequence import Sequence
from .values import value

_NOBODY: "HashTrieMap[int, Sequence]" = HashTrieMap()


@value
class WaitingQueue:
    """Sequences without pages, in order of arrival.

    `front` are preempted sequences, all older than those in `back`, which maps arrival numbers in
    `[head, tail)` to sequences.
    """

    front: tuple[Sequence, ...] = ()
    back: "HashTrieMap[int, Sequence]" = _NOBODY
    head: int = 0
    tail: int = 0

    def __len__(self) -> int:
        return len(self.front) + len(self.back)

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the sequences, oldest first."""
        yield from self.front
        for arrival in range(self.head, self.tail):
            sequence = self.back.get(arrival)
            if sequence is not None:
                yield sequence

    def get(self, arrival: int) -> Sequence | None:
        """Return the sequence with this arrival number; None if it is not waiting."""
        found = self.back.get(arrival)
        if found is not None:
            return found
        return next((sequence for sequence in self.front if sequence.goal.request.arrival == arrival), None)

    def push(self, sequence: Sequence) -> "WaitingQueue":
        """Return the queue with a new sequence, younger than all others, at its end."""
        arrival = sequence.goal.request.arrival
        head = self.head if self.back else arrival
        return WaitingQueue(self.front, self.back.insert(arrival, sequence), head, arrival + 1)

    def push_front(self, sequences: Iterable[Sequence]) -> "WaitingQueue":
        """Return the queue with preempted sequences, in order and older than all, in front."""
        return WaitingQueue((*sequences, *self.front), self.back, self.head, self.tail)

    def remove(self, arrivals: Iterable[int]) -> "WaitingQueue":
        """Return the queue without the sequences of these arrival numbers; ignore unknown ones."""
        gone = set(arrivals)
        front = tuple([sequence for sequence in self.front if sequence.goal.request.arrival not in gone])
        back, head = self.back, self.head
        for arrival in sorted(gone):
            if arrival in back:
                back = back.remove(arrival)
                if arrival == head:
                    # The head never moves back, so skipping numbers costs amortized O(1) per push.
                    while head < self.tail and head not in back:
                        head += 1
        return WaitingQueue(front, back, head, self.tail)
