"""Requests whose steps the server keeps for forks, bounded in number and size."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from .heads import Head
from .tickets import Ticket


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """A request that asked for steps, running or ended."""

    head: Head
    owner: str
    tickets: tuple[Ticket, ...]

    @property
    def size(self) -> int:
        """The number of positions in all frames of the request."""
        return sum(ticket.size for ticket in self.tickets)


class Kept:
    """The newest requests with steps, up to `most` answers and `positions` frame positions.

    Above these bounds, the API key that holds most loses its oldest request, so no key can evict the
    requests of a key that holds less. `drop` makes the engine discard the steps of an answer. It is
    called only once no fork of the answer is waiting.
    """

    def __init__(self, most: int, positions: int, drop: Callable[[Ticket], None]) -> None:
        self.most, self._positions, self._drop = most, positions, drop
        self._requests: dict[str, OrderedDict[str, KeptRequest]] = {}  # by owner, oldest first
        self._tickets: dict[int, Ticket] = {}  # the answers of all requests, by id
        self._answers, self._sizes = Counter[str](), Counter[str]()  # per owner: answers, positions

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, request: KeptRequest) -> None:
        """Keep a request, and drop older ones if the bounds are exceeded."""
        self._requests.setdefault(request.owner, OrderedDict())[request.head.id] = request
        self._tickets |= {ticket.id: ticket for ticket in request.tickets}
        self._answers[request.owner] += len(request.tickets)
        self._sizes[request.owner] += request.size
        self._shrink()

    def grew(self, ticket: Ticket, positions: int) -> None:
        """Record that the frames of an answer grew by `positions`."""
        if ticket.id in self._tickets:
            self._sizes[ticket.owner] += positions
            self._shrink()

    def _shrink(self) -> None:
        for held, most in ((self._answers, self.most), (self._sizes, self._positions)):
            while held.total() > most:
                owner = max(held, key=held.__getitem__)
                self._forget(next(iter(self._requests[owner].values())))

    def _forget(self, request: KeptRequest) -> None:
        owned = self._requests[request.owner]
        del owned[request.head.id]
        self._answers[request.owner] -= len(request.tickets)
        self._sizes[request.owner] -= request.size
        if not owned:
            del self._requests[request.owner], self._answers[request.owner], self._sizes[request.owner]
        for ticket in request.tickets:
            del self._tickets[ticket.id]
            if ticket.sent is None:
                ticket.submit = ticket.submit._replace(keeps=False)
            elif not ticket.forks:  # otherwise `forked` drops it once no fork of it waits
                self._drop(ticket)

    def find(self, request_id: str, owner: str) -> KeptRequest | None:
        """Return a request of this owner, or None."""
        return self._requests.get(owner, {}).get(request_id)

    def of(self, owner: str) -> list[KeptRequest]:
        """Return all requests of an owner, oldest first."""
        return list(self._requests.get(owner, {}).values())

    def forking(self, ticket_id: int) -> Ticket:
        """Return a kept answer, and count one more waiting fork of it."""
        ticket = self._tickets[ticket_id]
        ticket.forks += 1
        return ticket

    def forked(self, ticket: Ticket) -> None:
        """Record that a fork of an answer is no longer waiting."""
        ticket.forks -= 1
        if not ticket.forks and ticket.id not in self._tickets:
            self._drop(ticket)

    def died(self, number: int) -> None:
        """Forget the requests whose steps were kept by the dead engine of this replica."""
        for request in [request for owned in self._requests.values() for request in owned.values()]:
            if any(ticket.keeper == number for ticket in request.tickets):
                self._forget(request)
