"""Requests whose steps are kept: the newest ones, bounded in number and size, each for its own API key."""

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

    `drop` asks the engine to forget an answer. It is put off while a fork of the answer waits for the engine.
    """

    def __init__(self, most: int, positions: int, drop: Callable[[int], None]) -> None:
        self.most, self._positions, self._drop = most, positions, drop
        self._requests: OrderedDict[str, KeptRequest] = OrderedDict()  # oldest first
        self._homes: dict[int, str] = {}  # of answers
        self._size = 0
        self._forks: Counter[int] = Counter()  # waiting ones, by the answer that they begin at
        self._late: set[int] = set()  # answers to be dropped once no fork of them waits

    def __len__(self) -> int:
        return len(self._homes)

    def add(self, request: KeptRequest) -> None:
        """Keep a request, and drop the oldest ones where that is too many."""
        self._requests[request.head.id] = request
        self._homes |= {ticket.id: request.head.id for ticket in request.tickets}
        self._size += request.size
        self._shrink()

    def grew(self, ticket_id: int, positions: int) -> None:
        """Note that the frames of an answer hold more positions."""
        if ticket_id in self._homes:
            self._size += positions
            self._shrink()

    def _shrink(self) -> None:
        while self._requests and (len(self._homes) > self.most or self._size > self._positions):
            self._forget(next(iter(self._requests)))

    def _forget(self, request_id: str) -> None:
        request = self._requests.pop(request_id)
        self._size -= request.size
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
        found = self._requests.get(request_id)
        return found if found is not None and found.owner == owner else None

    def of(self, owner: str) -> list[KeptRequest]:
        """All requests of an owner, the oldest first."""
        return [request for request in self._requests.values() if request.owner == owner]

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
        for request in list(self._requests.values()):
            if any(ticket.sent is not None and had(ticket.id) for ticket in request.tickets):
                self._forget(request.head.id)
        self._late = {ticket_id for ticket_id in self._late if not had(ticket_id)}
