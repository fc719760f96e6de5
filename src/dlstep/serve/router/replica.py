"""The front's view of one engine: its phase, the requests sent to it, and its expected pages."""

import asyncio
from collections.abc import Callable
from typing import Literal

from ..engine_process import Death, Host
from ..log_lines import STDERR
from ..messages import Card, Load, Message
from ..settings import ServeOptions
from .link import Deadline, Link
from .placement import Pages, Standing
from .tickets import Ticket

AHEAD = 8  # requests sent to an engine beyond the number that it decodes concurrently
Phase = Literal["loading", "ready", "silent", "restarting", "resting", "failed"]


class Replica:
    """An engine and its link.

    `resting`: it accepts no new requests, because a restart was requested. `silent`: it accepts none,
    because its heartbeats are overdue. The next heartbeat makes it ready; without one it is killed.

    Args:
        number: Index among the replicas.
        host: Runs the engine.
        options: Limits on restarts, and the deadlines.
        heard: Called with each message.
        turned: Called when the engine becomes silent, or ready again.
        died: Called for each death before the restart, with the deadline that was missed, or None.
    """

    def __init__(
        self,
        number: int,
        host: Host,
        options: ServeOptions,
        heard: Callable[["Replica", Message], None],
        turned: Callable[[], None],
        died: Callable[["Replica", Deadline | None], None],
    ) -> None:
        self.number = number
        self.phase: Phase = "loading"
        self.deaths = 0
        self.last_death: Death | None = None
        self.load = Load()
        self.card: Card | None = None
        self.sent: dict[int, Ticket] = {}
        self.abandoned: set[int] = set()  # ids of tickets that ended in the front only
        self.meeting: asyncio.Task[None] | None = None  # prepares the front for the model
        self.link = Link(host, options, self)
        self._heard, self._turned, self._died = heard, turned, died
        self._pages = Pages(0)
        self._changed = asyncio.Event()

    def set_phase(self, phase: Phase) -> None:
        """Set the replica's phase and notify waiters."""
        self.phase = phase
        self._changed.set()

    @property
    def busy(self) -> bool:
        """Whether the engine has unfinished requests."""
        return bool(self.sent or self.abandoned)

    def hear(self, message: Message) -> None:
        """Pass a message to the front."""
        self._heard(self, message)

    def notice(self, *, silent: bool) -> None:
        """Switch between ready and silent as heartbeats become overdue or resume."""
        if self.phase == ("ready" if silent else "silent"):
            self.set_phase("silent" if silent else "ready")
            self._turned()

    def bury(self, death: Death, deadline: Deadline | None) -> None:
        """Record the death of the engine, and log the reason."""
        STDERR.write(f"dlstep: {death.reason}")
        self.deaths += 1
        self.last_death = death
        self.set_phase("restarting")
        self._died(self, deadline)

    def meet(self, card: Card) -> None:
        """Store the card of the loaded engine, and become ready."""
        self.card, self._pages = card, Pages(card.config.num_pages)
        self.set_phase("ready")

    def give(self, ticket: Ticket, now: float) -> None:
        """Send a ticket to the engine."""
        ticket.sent, ticket.replica = now, self.number
        ticket.keeper = self.number if ticket.submit.keeps else None
        self.sent[ticket.id] = ticket
        self._pages.learn(ticket.keys)
        self.link.send(ticket.submit)

    def take_back(self, ticket: Ticket) -> None:
        """Remove a ticket from those that were sent to the engine, and notify waiters."""
        del self.sent[ticket.id]
        self._changed.set()

    def abandon(self, ticket: Ticket) -> None:
        """Stop waiting for the engine to end a ticket. The ticket still counts toward the engine's load."""
        self.take_back(ticket)
        self.abandoned.add(ticket.id)

    def lose(self) -> None:
        """Forget the load, the pages and the abandoned tickets of an engine that is gone."""
        if self.meeting is not None:
            self.meeting.cancel()
            self.meeting = None
        self.load = Load()
        self.abandoned.clear()
        self._pages = Pages(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true. It is called again when the phase changes or a ticket is removed."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    @property
    def has_room(self) -> bool:
        """Whether the engine can be sent one more request."""
        return self.card is not None and len(self.sent) + len(self.abandoned) < self.card.config.max_num_reqs + AHEAD

    @property
    def takes(self) -> bool:
        """Whether the replica accepts requests now."""
        return self.phase == "ready" and self.has_room

    @property
    def takes_forks(self) -> bool:
        """Whether the replica accepts forks of its kept requests. A resting engine still does."""
        return self.phase in ("ready", "resting") and self.has_room

    def standing(self, keys: tuple[bytes, ...]) -> Standing:
        """Return its numbers of requests and of leading prompt pages (`keys`) it should have."""
        return Standing(self.number, len(self.sent), self._pages.known(keys))
