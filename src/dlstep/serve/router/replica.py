"""The router's view of one engine: its phase, the requests sent to it, its expected pages, and its link.

The link enforces deadlines and restarts a dead engine. The reason for an engine's silence (stopped, stuck
in a kernel, waiting for a device) is unknown, so any engine that misses a deadline is killed.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Literal

from ...processes import Heartbeat, Silence, disconnect
from ..engine_process import Death, Host
from ..log_lines import LOG
from ..messages import Command, EngineFailed, EngineLoad, Message, ModelInfo, StepReport
from ..settings import ServeOptions
from ..shapes import ReplicaPhase
from .pending_requests import PendingRequest
from .placement import Candidate, Pages

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds before a restart; doubled each time
HEALTHY = 60.0  # seconds; earlier deaths no longer count once an engine has been ready for longer
PATIENCE = 5.0  # seconds that an engine has to exit after it was asked to
LINGER = 1.0  # seconds that an engine may take to exit after it closed its pipe
TICK = 0.25  # seconds between two checks of the deadlines
LOADING = 60.0  # seconds; minimum heartbeat timeout of a loading engine
SILENCE = 2.5  # seconds without a heartbeat (one per second) until an engine gets no new requests
Deadline = Literal["start", "heartbeat", "step"]


class Link:
    """The HTTP process's end of an engine's pipe. It keeps the engine running and carries messages.

    All methods are called in the event loop.
    """

    def __init__(self, host: Host, options: ServeOptions, replica: "Replica") -> None:
        self._host, self._options, self._replica = host, options, replica
        self._commands: asyncio.Queue[Command | None] = asyncio.Queue()
        self._closing = asyncio.Event()
        self._ready_since: float | None = None
        # Time is counted in ticks of the deadline checks, not read from a clock: if this process is
        # paused and reads no messages, the pause must not count against the engine.
        self._age, self._silence = 0.0, Silence()
        self._missed: Deadline | None = None
        self.failure = ""  # why the last engine could not be created; empty if it could

    @property
    def silent(self) -> bool:
        """Whether the heartbeats of the engine are overdue."""
        return self._silence.seconds > SILENCE

    def send(self, command: Command) -> None:
        """Queue a command for the next message. Commands that a dead engine has not read are lost."""
        self._commands.put_nowait(command)

    def close(self) -> None:
        """Ask the engine to end; `run` returns once it has."""
        self._closing.set()
        self._commands.put_nowait(None)

    async def run(self) -> None:
        """Run the engine, restarting it until it is closed, dies too often or cannot start."""
        loop, deaths, pause = asyncio.get_running_loop(), 0, FIRST_PAUSE
        self.failure = ""
        while not self._closing.is_set():
            await self._run_once()
            if self._ready_since is not None and loop.time() - self._ready_since > HEALTHY:
                deaths, pause = 0, FIRST_PAUSE
            deaths += 1
            if self.failure or deaths > self._options.max_restarts:
                return
            if not self._closing.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _run_once(self) -> None:
        """Run one engine until it ends."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._commands, self._ready_since, self._missed = asyncio.Queue(), None, None
        self._age, self._silence = 0.0, Silence()
        pipe = await asyncio.to_thread(self._host.start)

        def read() -> None:
            try:
                while True:
                    loop.call_soon_threadsafe(self._receive, pipe.recv())
            except (EOFError, OSError):
                loop.call_soon_threadsafe(ended.set)

        reader = Thread(target=read, name="dlstep-reader", daemon=True)
        reader.start()
        tasks = [asyncio.create_task(self._write(pipe)), asyncio.create_task(self._watch())]
        if self._closing.is_set():
            self._commands.put_nowait(None)  # `close` may have put its None into the previous queue
        waits = [asyncio.create_task(event.wait()) for event in (ended, self._closing)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self._closing.is_set():
            unresponsive = self.silent or self._ready_since is None  # an engine reads no commands while it loads
            await asyncio.to_thread(self._host.end, 0.0 if unresponsive else PATIENCE)
        else:
            self._replica.set_silent(silent=True)
            self._replica.record_death(await asyncio.to_thread(self._host.end, LINGER), self._missed)
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), LINGER)
        disconnect(pipe)  # a process that the engine forked may still hold the other end
        await ended.wait()
        for task in (*waits, *tasks):
            task.cancel()
        await asyncio.wait([*waits, *tasks])
        await asyncio.to_thread(reader.join)
        pipe.close()

    def _receive(self, message: Message | Heartbeat) -> None:
        self._silence.hear(message)
        if isinstance(message, Heartbeat):
            return
        match message:
            case EngineFailed():
                self.failure = message.error
            case ModelInfo():
                self._ready_since = asyncio.get_running_loop().time()
            case StepReport():
                self._silence.standstill = 0.0
        self._replica.handle(message)

    async def _watch(self) -> None:
        """Check the deadlines, and kill the engine when it misses one."""
        while (overdue := self._overdue()) is None:
            await asyncio.sleep(TICK)
            self._age += TICK
            self._silence.wait(TICK)
            if not self._replica.busy:
                self._silence.standstill = 0.0
            self._replica.set_silent(silent=self.silent)
        self._missed, reason = overdue
        self._host.kill(f"{reason} and was killed")

    def _overdue(self) -> tuple[Deadline, str] | None:
        """Return the deadline that the engine has missed, with a message; None if there is none."""
        options, loading = self._options, self._ready_since is None
        if loading and self._age >= options.start_timeout:
            return "start", f"was not ready within {options.start_timeout:g} seconds"
        # Heartbeats may be late during loading: importing or compiling can hold the GIL.
        limit = max(options.heartbeat_timeout, LOADING) if loading else options.heartbeat_timeout
        if self._silence.seconds >= limit:
            return "heartbeat", f"sent no heartbeat for {limit:g} seconds"
        if not loading and self._silence.standstill >= options.engine_timeout:
            return "step", f"finished no forward pass for {options.engine_timeout:g} seconds"
        return None

    async def _write(self, pipe: Connection) -> None:
        """Send queued commands in batches, from a thread: a full pipe blocks until a step ends."""
        loop, commands = asyncio.get_running_loop(), self._commands
        with ThreadPoolExecutor(1, "dlstep-writer") as thread:
            while True:
                batch = [await commands.get()]
                while not commands.empty():
                    batch.append(commands.get_nowait())
                message = None if None in batch else tuple(batch)
                try:
                    await loop.run_in_executor(thread, pipe.send, message)
                except OSError:  # the engine died, which the reader notices
                    return


AHEAD = 8  # requests sent to an engine beyond the number that it decodes concurrently


class Replica:
    """An engine and its link.

    A `silent` engine accepts no new requests, because its heartbeats are overdue. The next heartbeat
    makes it ready; without one it is killed.

    Args:
        number: Index among the replicas.
        host: Runs the engine.
        options: Limits on restarts, and the deadlines.
        on_message: Called with each message.
        on_end: Called when the engine has ended, with the deadline that it missed, or None.
        on_silence: Called when the engine becomes silent, or ready again.
    """

    def __init__(
        self,
        number: int,
        host: Host,
        options: ServeOptions,
        on_message: Callable[["Replica", Message], None],
        on_end: Callable[["Replica", Deadline | None], None],
        on_silence: Callable[[], None],
    ) -> None:
        self.number = number
        self.phase: ReplicaPhase = "loading"
        self.deaths = 0
        self.last_death: Death | None = None
        self.load = EngineLoad()
        self.info: ModelInfo | None = None
        self.sent: dict[int, PendingRequest] = {}
        self.abandoned: set[int] = set()  # ids of requests that only the router ended
        self.preparation: asyncio.Task[None] | None = None  # the router's preparation for the model
        self.link = Link(host, options, self)
        self._on_message, self._on_end, self._on_silence = on_message, on_end, on_silence
        self._pages = Pages(0)

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
            self.phase = "silent" if silent else "ready"
            self._on_silence()

    def record_death(self, death: Death, deadline: Deadline | None) -> None:
        """Record the death of the engine, and log the reason."""
        LOG.warning("dlstep: %s", death.reason)
        self.deaths += 1
        self.last_death = death
        self.phase = "restarting"
        self._on_end(self, deadline)

    def set_loaded(self, info: ModelInfo) -> None:
        """Store the facts of the loaded engine, and become ready."""
        self.info, self._pages = info, Pages(info.config.num_pages)
        self.phase = "ready"

    def send(self, pending: PendingRequest, now: float) -> None:
        """Send a request to the engine."""
        pending.sent, pending.replica = now, self.number
        pending.keeper = self.number if pending.submit.keeps else None
        self.sent[pending.id] = pending
        self._pages.learn(pending.keys)
        self.link.send(pending.submit)

    def remove(self, pending: PendingRequest) -> None:
        """Remove a request from those that were sent to the engine."""
        del self.sent[pending.id]

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

    @property
    def accepts_requests(self) -> bool:
        """Whether the engine is ready and can be sent one more request."""
        if self.phase != "ready" or self.info is None:
            return False
        return len(self.sent) + len(self.abandoned) < self.info.config.max_num_reqs + AHEAD

    def candidate(self, keys: tuple[bytes, ...]) -> Candidate:
        """Return its number of requests, and how many leading pages of `keys` it should have."""
        return Candidate(self.number, len(self.sent), self._pages.known(keys))
