"""Requests whose steps the server keeps for forks, bounded in number and size."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from .pending_requests import Head, PendingRequest


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """A request with recorded steps, running or ended."""

    head: Head
    owner: str
    pending_requests: tuple[PendingRequest, ...]

    @property
    def size(self) -> int:
        """The number of positions in all frames of the request."""
        return sum(pending.size for pending in self.pending_requests)


class RecordingStore:
    """The newest requests with steps, up to `most` answers and `positions` frame positions.

    Above these bounds, the API key with the most answers or positions loses its oldest request, so no
    key can evict the requests of a key with fewer. `drop` makes the engine discard the steps of an answer. It is
    called only once no fork of the answer is waiting.
    """

    def __init__(self, most: int, positions: int, drop: Callable[[PendingRequest], None]) -> None:
        self.most, self._positions, self._drop = most, positions, drop
        self._requests: dict[str, OrderedDict[str, KeptRequest]] = {}  # by owner, oldest first
        self._pending_requests: dict[int, PendingRequest] = {}  # the answers of all requests, by id
        self._answers, self._sizes = Counter[str](), Counter[str]()  # per owner: answers, positions

    def __len__(self) -> int:
        return len(self._pending_requests)

    def add(self, request: KeptRequest) -> None:
        """Keep a request, and drop older ones if the bounds are exceeded."""
        self._requests.setdefault(request.owner, OrderedDict())[request.head.id] = request
        self._pending_requests |= {pending.id: pending for pending in request.pending_requests}
        self._answers[request.owner] += len(request.pending_requests)
        self._sizes[request.owner] += request.size
        self._shrink()

    def grew(self, pending: PendingRequest, positions: int) -> None:
        """Record that the frames of an answer grew by `positions`."""
        if pending.id in self._pending_requests:
            self._sizes[pending.owner] += positions
            self._shrink()

    def _shrink(self) -> None:
        for counts, most in ((self._answers, self.most), (self._sizes, self._positions)):
            while counts.total() > most:
                owner = max(counts, key=counts.__getitem__)
                self._forget(next(iter(self._requests[owner].values())))

    def _forget(self, request: KeptRequest) -> None:
        owned = self._requests[request.owner]
        del owned[request.head.id]
        self._answers[request.owner] -= len(request.pending_requests)
        self._sizes[request.owner] -= request.size
        if not owned:
            del self._requests[request.owner], self._answers[request.owner], self._sizes[request.owner]
        for pending in request.pending_requests:
            del self._pending_requests[pending.id]
            if pending.sent is None:
                pending.submit = pending.submit._replace(keeps=False)
            elif not pending.forks:  # otherwise `forked` drops it once no fork waits
                self._drop(pending)

    def find(self, request_id: str, owner: str) -> KeptRequest | None:
        """Return a request of this owner, or None."""
        return self._requests.get(owner, {}).get(request_id)

    def of(self, owner: str) -> list[KeptRequest]:
        """Return all requests of an owner, oldest first."""
        return list(self._requests.get(owner, {}).values())

    def forking(self, request_id: int) -> PendingRequest:
        """Return a kept answer, and count one more waiting fork of it."""
        pending = self._pending_requests[request_id]
        pending.forks += 1
        return pending

    def forked(self, pending: PendingRequest) -> None:
        """Record that a fork of an answer is no longer waiting."""
        pending.forks -= 1
        if not pending.forks and pending.id not in self._pending_requests:
            self._drop(pending)

    def died(self, number: int) -> None:
        """Forget the requests whose steps were kept by the dead engine of this replica."""
        for request in [request for owned in self._requests.values() for request in owned.values()]:
            if any(pending.keeper == number for pending in request.pending_requests):
                self._forget(request)
