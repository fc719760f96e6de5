"""Requests whose steps the server keeps for forks, bounded in number and size."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from .pending_requests import Head, PendingRequest


class KeptRequest(NamedTuple):
    """A request with recorded steps, running or ended."""

    head: Head
    owner: str
    pending_requests: tuple[PendingRequest, ...]

    @property
    def size(self) -> int:
        """The number of positions in all frames of the request."""
        return sum(pending.size for pending in self.pending_requests)


class RecordingStore:
    """The newest requests with steps, up to `most` answers and `positions` frame positions when a request is added.

    Above these bounds, the API key with the most answers or positions loses its oldest request, so no
    key can evict the requests of a key with fewer. `drop` makes the engine discard the steps of an answer. It is
    called only once no fork of the answer is waiting.
    """

    def __init__(self, most: int, positions: int, drop: Callable[[PendingRequest], None]) -> None:
        self.most, self._positions, self._drop = most, positions, drop
        self._requests: dict[tuple[str, str], KeptRequest] = {}  # by owner and id, oldest first

    def _pending(self) -> list[PendingRequest]:
        """Return the answers of all requests."""
        return [pending for request in self._requests.values() for pending in request.pending_requests]

    def add(self, request: KeptRequest) -> None:
        """Keep a request, and drop older ones if the bounds are exceeded."""
        self._requests[request.owner, request.head.id] = request
        self._shrink(lambda kept: len(kept.pending_requests), self.most)
        self._shrink(lambda kept: kept.size, self._positions)

    def _shrink(self, size: Callable[[KeptRequest], int], most: int) -> None:
        """Drop requests until their sizes add up to at most `most`."""
        sizes = Counter[str]()
        for request in self._requests.values():
            sizes[request.owner] += size(request)
        while sizes.total() > most:
            owner = max(sizes, key=sizes.__getitem__)
            oldest = self.of(owner)[0]
            sizes[owner] -= size(oldest)
            self._forget(oldest)

    def _forget(self, request: KeptRequest) -> None:
        del self._requests[request.owner, request.head.id]
        for pending in request.pending_requests:
            if pending.sent is None:
                pending.submit = pending.submit._replace(keeps=False)
            elif not pending.forks:  # otherwise `forked` drops it once no fork waits
                self._drop(pending)

    def find(self, request_id: str, owner: str) -> KeptRequest | None:
        """Return a request of this owner, or None."""
        return self._requests.get((owner, request_id))

    def of(self, owner: str) -> list[KeptRequest]:
        """Return all requests of an owner, oldest first."""
        return [request for request in self._requests.values() if request.owner == owner]

    def forking(self, request_id: int) -> PendingRequest:
        """Return a kept answer, and count one more waiting fork of it."""
        pending = next(pending for pending in self._pending() if pending.id == request_id)
        pending.forks += 1
        return pending

    def forked(self, pending: PendingRequest) -> None:
        """Record that a fork of an answer is no longer waiting."""
        pending.forks -= 1
        if not pending.forks and pending not in self._pending():
            self._drop(pending)

    def died(self, number: int) -> None:
        """Forget the requests whose steps were kept by the dead engine of this replica."""
        for request in list(self._requests.values()):
            if any(pending.keeper == number for pending in request.pending_requests):
                self._forget(request)
