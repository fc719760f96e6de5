"""One engine as the front knows it: whether it lives, what it was given, and which pages it should have."""

import asyncio
from collections.abc import Callable
from typing import Literal

from .engine_process import Death, Host
from .lines import STDERR
from .link import Deadline, Link
from .messages import Card, Load, Message
from .placement import Pages, Standing
from .settings import ServeOptions
from .tickets import Ticket

AHEAD = 8  # requests that an engine is given beyond those that it decodes at a time
Phase = Literal["loading", "ready", "silent", "restarting", "resting", "failed"]


class Replica:
    """An engine and its link.

    `resting`: it takes no new request, because a restart was requested. `silent`: it takes none, because its heartbeats are
    overdue; the next heartbeat makes it ready again, and without one it is killed.

    Args:
        number: Index among the replicas.
        host: Runs the engine.
        options: Limits on restarts, and the deadlines.
        heard: Called with each message.
        turned: Called when the engine becomes silent, or ready again.
        died: Called for each death before the next start, with the deadline that the engine missed, or None.
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
        self.abandoned: set[int] = set()  # ids of tickets that the front ended although the engine may still run them
        self.meeting: asyncio.Task[None] | None = None  # of what has to be done before its engine is asked
        self.link = Link(host, options, self)
        self._heard, self._turned, self._died = heard, turned, died
        self._pages = Pages(0)
        self._changed = asyncio.Event()

    def set_phase(self, phase: Phase) -> None:
        """Be in another phase."""
        self.phase = phase
        self._changed.set()

    @property
    def busy(self) -> bool:
        """Whether its engine has a request that it has not ended."""
        return bool(self.sent or self.abandoned)

    def hear(self, message: Message) -> None:
        """Pass a message on."""
        self._heard(self, message)

    def notice(self, *, silent: bool) -> None:
        """Take no requests while the heartbeats of the engine are overdue."""
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
        """Take requests from now on."""
        self.card, self._pages = card, Pages(card.config.num_pages)
        self.set_phase("ready")

    def give(self, ticket: Ticket, keys: tuple[bytes, ...], now: float) -> None:
        """Let the engine answer a ticket, whose prompt has these pages."""
        ticket.sent, ticket.replica = now, self.number
        self.sent[ticket.id] = ticket
        self._pages.learn(keys)
        self.link.send(ticket.submit)

    def take_back(self, ticket: Ticket) -> None:
        """The engine has a ticket no longer."""
        del self.sent[ticket.id]
        self._changed.set()

    def abandon(self, ticket: Ticket) -> None:
        """Stop waiting for the engine to end a ticket. The ticket still counts toward the engine's load."""
        self.take_back(ticket)
        self.abandoned.add(ticket.id)

    def lose(self) -> None:
        """Know nothing of an engine that is gone."""
        if self.meeting is not None:
            self.meeting.cancel()
            self.meeting = None
        self.load = Load()
        self.abandoned.clear()
        self._pages = Pages(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the phase or the requests."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    @property
    def has_room(self) -> bool:
        """Whether its engine can use one more request."""
        return self.card is not None and len(self.sent) + len(self.abandoned) < self.card.config.max_num_reqs + AHEAD

    @property
    def takes(self) -> bool:
        """Whether it takes requests now."""
        return self.phase == "ready" and self.has_room

    @property
    def takes_forks(self) -> bool:
        """Whether it takes forks of what it has; one that rests has them until it ends."""
        return self.phase in ("ready", "resting") and self.has_room

    def standing(self, keys: tuple[bytes, ...]) -> Standing:
        """How it stands to a request whose prompt has these pages."""
        return Standing(self.number, len(self.sent), self._pages.known(keys))
