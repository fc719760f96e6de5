"""Requests that wait for the engine: bounded, and every API key has its turn."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A queue for each owner; `pop` takes one from each in turn, so that one owner's requests delay no other's first."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[Item]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(list(map(list, self._queues.values())))

    def push(self, owner: str, item: Item) -> None:
        """Put an item behind the others of its owner."""
        self._queues.setdefault(owner, deque()).append(item)
        self._length += 1

    def first(self) -> Item:
        """The item that `pop` would take."""
        return next(iter(self._queues.values()))[0]

    def pop(self) -> Item:
        """The first item of the owner whose turn it is, who then comes after all others."""
        owner, queue = self._queues.popitem(last=False)
        item = queue.popleft()
        if queue:
            self._queues[owner] = queue
        self._length -= 1
        return item

    def remove(self, owner: str, item: Item) -> None:
        """Take an item out of the queue, where it must be."""
        self._queues[owner].remove(item)
        if not self._queues[owner]:
            del self._queues[owner]
        self._length -= 1
