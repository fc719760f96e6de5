"""Requests whose steps the server keeps: the newest ones of each API key, bounded in number and size."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from .heads import Head
from .tickets import Ticket


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """A request that asked for steps, under way or ended."""

    head: Head
    owner: str
    tickets: tuple[Ticket, ...]

    @property
    def size(self) -> int:
        """Positions of all its frames."""
        return sum(ticket.size for ticket in self.tickets)


class Kept:
    """The newest requests that asked for steps, at most `most` answers and `positions` positions of their frames.

    Above these bounds, the API key that holds most loses its oldest request, so no key can evict the requests of a key that
    holds less. `drop` makes the engine forget an answer; while a fork of the answer waits, it is deferred.
    """

    def __init__(self, most: int, positions: int, drop: Callable[[int], None]) -> None:
        self.most, self._positions, self._drop = most, positions, drop
        self._requests: dict[str, OrderedDict[str, KeptRequest]] = {}  # by owner, oldest first
        self._homes: dict[int, KeptRequest] = {}  # requests, by the ids of their answers
        self._answers, self._sizes = Counter[str](), Counter[str]()  # numbers of answers and positions, by owner
        self._forks: Counter[int] = Counter()  # waiting ones, by the answer that they begin at
        self._late: set[int] = set()  # answers to be dropped once no fork of them waits

    def __len__(self) -> int:
        return len(self._homes)

    def add(self, request: KeptRequest) -> None:
        """Keep a request, and drop older ones above the bounds."""
        self._requests.setdefault(request.owner, OrderedDict())[request.head.id] = request
        self._homes |= dict.fromkeys((ticket.id for ticket in request.tickets), request)
        self._answers[request.owner] += len(request.tickets)
        self._sizes[request.owner] += request.size
        self._shrink()

    def grew(self, ticket_id: int, positions: int) -> None:
        """Note that the frames of an answer hold more positions."""
        if (request := self._homes.get(ticket_id)) is not None:
            self._sizes[request.owner] += positions
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
            del self._homes[ticket.id]
            if ticket.sent is None:
                ticket.submit = ticket.submit._replace(keeps=False)
            elif self._forks[ticket.id]:
                self._late.add(ticket.id)
            else:
                self._drop(ticket.id)

    def find(self, request_id: str, owner: str) -> KeptRequest | None:
        """A request of this owner."""
        return self._requests.get(owner, {}).get(request_id)

    def of(self, owner: str) -> list[KeptRequest]:
        """All requests of an owner, the oldest first."""
        return list(self._requests.get(owner, {}).values())

    def forking(self, ticket_id: int) -> None:
        """A fork of an answer waits for the engine."""
        self._forks[ticket_id] += 1

    def forked(self, ticket_id: int) -> None:
        """A fork of an answer waits no more."""
        self._forks[ticket_id] -= 1
        if not self._forks[ticket_id]:
            del self._forks[ticket_id]
            if ticket_id in self._late:
                self._late.remove(ticket_id)
                self._drop(ticket_id)

    def died(self, had: Callable[[int], bool] = lambda ticket_id: True) -> None:
        """An engine is gone, and with it all answers that it `had`; those that no engine saw will be kept by the next one."""
        for request in [request for owned in self._requests.values() for request in owned.values()]:
            if any(ticket.sent is not None and had(ticket.id) for ticket in request.tickets):
                self._forget(request)
        self._late = {ticket_id for ticket_id in self._late if not had(ticket_id)}
