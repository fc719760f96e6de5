"""The router's view of one engine: its phase, the requests sent to it, and its expected pages."""

import asyncio
from collections.abc import Callable
from typing import Literal

from ..engine_process import Death, Host
from ..log_lines import LOG
from ..messages import EngineLoad, Message, ModelInfo
from ..settings import ServeOptions
from .link import Deadline, Link
from .pending_requests import PendingRequest
from .placement import Candidate, Pages

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
        on_message: Called with each message.
        on_silence: Called when the engine becomes silent, or ready again.
        on_death: Called for each death before the restart, with the missed deadline, or None.
    """

    def __init__(
        self,
        number: int,
        host: Host,
        options: ServeOptions,
        on_message: Callable[["Replica", Message], None],
        on_silence: Callable[[], None],
        on_death: Callable[["Replica", Deadline | None], None],
    ) -> None:
        self.number = number
        self.phase: Phase = "loading"
        self.deaths = 0
        self.last_death: Death | None = None
        self.load = EngineLoad()
        self.info: ModelInfo | None = None
        self.sent: dict[int, PendingRequest] = {}
        self.abandoned: set[int] = set()  # ids of requests that only the router ended
        self.preparation: asyncio.Task[None] | None = None  # the router's preparation for the model
        self.link = Link(host, options, self)
        self._on_message, self._on_silence, self._on_death = on_message, on_silence, on_death
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

    def handle(self, message: Message) -> None:
        """Pass a message to the router."""
        self._on_message(self, message)

    def set_silent(self, *, silent: bool) -> None:
        """Switch between ready and silent as heartbeats become overdue or resume."""
        if self.phase == ("ready" if silent else "silent"):
            self.set_phase("silent" if silent else "ready")
            self._on_silence()

    def record_death(self, death: Death, deadline: Deadline | None) -> None:
        """Record the death of the engine, and log the reason."""
        LOG.warning("dlstep: %s", death.reason)
        self.deaths += 1
        self.last_death = death
        self.set_phase("restarting")
        self._on_death(self, deadline)

    def set_loaded(self, info: ModelInfo) -> None:
        """Store the facts of the loaded engine, and become ready."""
        self.info, self._pages = info, Pages(info.config.num_pages)
        self.set_phase("ready")

    def send(self, pending: PendingRequest, now: float) -> None:
        """Send a request to the engine."""
        pending.sent, pending.replica = now, self.number
        pending.keeper = self.number if pending.submit.keeps else None
        self.sent[pending.id] = pending
        self._pages.learn(pending.keys)
        self.link.send(pending.submit)

    def remove(self, pending: PendingRequest) -> None:
        """Remove a request from those that were sent to the engine, and notify waiters."""
        del self.sent[pending.id]
        self._changed.set()

    def abandon(self, pending: PendingRequest) -> None:
        """Stop waiting for the engine to end a request, which still counts toward its load."""
        self.remove(pending)
        self.abandoned.add(pending.id)

    def reset(self) -> None:
        """Forget the load, the pages and the abandoned requests of an engine that has ended."""
        if self.preparation is not None:
            self.preparation.cancel()
            self.preparation = None
        self.load = EngineLoad()
        self.abandoned.clear()
        self._pages = Pages(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true, calling it when the phase changes or a request is removed."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    @property
    def has_room(self) -> bool:
        """Whether the engine can be sent one more request."""
        return self.info is not None and len(self.sent) + len(self.abandoned) < self.info.config.max_num_reqs + AHEAD

    @property
    def accepts_requests(self) -> bool:
        """Whether the replica accepts requests now."""
        return self.phase == "ready" and self.has_room

    @property
    def accepts_forks(self) -> bool:
        """Whether the replica accepts forks of its kept requests. A resting engine still does."""
        return self.phase in ("ready", "resting") and self.has_room

    def candidate(self, keys: tuple[bytes, ...]) -> Candidate:
        """Return its number of requests, and how many leading pages of `keys` it should have."""
        return Candidate(self.number, len(self.sent), self._pages.known(keys))
