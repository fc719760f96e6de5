"""Sequences that wait, as a persistent queue: every call costs the same, however many wait."""

from collections.abc import Iterable, Iterator

from rpds import HashTrieMap

from .sequence import Sequence
from .values import value

_NOBODY: "HashTrieMap[int, Sequence]" = HashTrieMap()


@value
class WaitingQueue:
    """Sequences that hold no pages, in order of arrival.

    `front` are those that held pages before; all of them are older than those of `back`, which maps arrival numbers in
    `[head, tail)` to sequences.
    """

    front: tuple[Sequence, ...] = ()
    back: "HashTrieMap[int, Sequence]" = _NOBODY
    head: int = 0
    tail: int = 0

    def __len__(self) -> int:
        return len(self.front) + len(self.back)

    def __iter__(self) -> Iterator[Sequence]:
        """The sequences, oldest first."""
        yield from self.front
        for arrival in range(self.head, self.tail):
            sequence = self.back.get(arrival)
            if sequence is not None:
                yield sequence

    def get(self, arrival: int) -> Sequence | None:
        """The sequence with this arrival number; None if it does not wait."""
        found = self.back.get(arrival)
        if found is not None:
            return found
        return next((sequence for sequence in self.front if sequence.goal.request.arrival == arrival), None)

    def push(self, sequence: Sequence) -> "WaitingQueue":
        """The queue with a new sequence, younger than all others, at its end."""
        arrival = sequence.goal.request.arrival
        head = self.head if self.back else arrival
        return WaitingQueue(self.front, self.back.insert(arrival, sequence), head, arrival + 1)

    def push_front(self, sequences: Iterable[Sequence]) -> "WaitingQueue":
        """The queue with sequences that held pages, older than all others and in order, in front."""
        return WaitingQueue((*sequences, *self.front), self.back, self.head, self.tail)

    def remove(self, arrivals: Iterable[int]) -> "WaitingQueue":
        """The queue without the sequences that have these arrival numbers; numbers of nobody are passed over."""
        gone = set(arrivals)
        front = tuple([sequence for sequence in self.front if sequence.goal.request.arrival not in gone])
        back, head = self.back, self.head
        for arrival in sorted(gone):
            if arrival in back:
                back = back.remove(arrival)
                if arrival == head:
                    # Numbers passed here are never looked at again, so that skipping costs O(1) per push over the queue's life.
                    while head < self.tail and head not in back:
                        head += 1
        return WaitingQueue(front, back, head, self.tail)
