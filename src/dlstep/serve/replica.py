"""One engine as the front knows it: whether it lives, what it was given, and which pages it should have."""

import asyncio
from collections.abc import Callable
from typing import Literal

from .engine_process import Host
from .link import Link
from .messages import Card, Load, Message
from .placement import Pages, Standing
from .tickets import Ticket

AHEAD = 8  # requests that an engine is given beyond those that it decodes at a time
Phase = Literal["loading", "ready", "restarting", "resting", "failed"]


class Replica:
    """An engine and its link. `resting`: it takes no request, because it is to be started again on purpose."""

    def __init__(
        self,
        number: int,
        host: Host,
        max_restarts: int,
        heard: Callable[["Replica", Message], None],
        died: Callable[["Replica"], None],
    ) -> None:
        self.number = number
        self.phase: Phase = "loading"
        self.deaths = 0
        self.load = Load()
        self.card: Card | None = None
        self.sent: dict[int, Ticket] = {}
        self.meeting: asyncio.Task[None] | None = None  # of what has to be done before its engine is asked
        self.link = Link(host, max_restarts, lambda message: heard(self, message), lambda: died(self))
        self._pages = Pages(0)
        self._changed = asyncio.Event()

    def set_phase(self, phase: Phase) -> None:
        """Be in another phase."""
        self.phase = phase
        self._changed.set()

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

    def lose(self) -> None:
        """Know nothing of an engine that is gone."""
        if self.meeting is not None:
            self.meeting.cancel()
            self.meeting = None
        self.load = Load()
        self._pages = Pages(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the phase or the requests."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    @property
    def has_room(self) -> bool:
        """Whether its engine can use one more request."""
        return self.card is not None and len(self.sent) < self.card.config.max_num_reqs + AHEAD

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
