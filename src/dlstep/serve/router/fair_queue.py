"""The queue of requests that wait for an engine, fair among API keys."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """One queue per owner. `pop` serves owners round-robin, so no owner can starve another."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Item]:
        return iter([item for queue in self._queues.values() for item in queue])

    def push(self, owner: str, item: Item) -> None:
        """Append an item to its owner's queue."""
        self._queues.setdefault(owner, deque()).append(item)

    def first(self) -> Item:
        """Return the item that `pop` would return, without removing it."""
        return next(iter(self._queues.values()))[0]

    def pop(self) -> Item:
        """Remove and return the first item of the next owner, and move the owner to the end."""
        owner, queue = self._queues.popitem(last=False)
        item = queue.popleft()
        if queue:
            self._queues[owner] = queue
        return item

    def remove(self, owner: str, item: Item) -> None:
        """Remove a queued item."""
        self._queues[owner].remove(item)
        if not self._queues[owner]:
            del self._queues[owner]
