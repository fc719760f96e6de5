"""An engine of the router: its process, its phase, the requests sent to it, and its expected pages.

The reason for an engine's silence (stopped, stuck in a kernel, waiting for a device) is unknown, so any
engine that misses a deadline is killed.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Literal, Protocol

from ...engine.step_limit import StepLimit
from ...processes import Worker, disconnect, watch
from ..log_lines import LOG
from ..messages import ChangeEngine, Command, EngineFailed, EngineLoad, Facts, StepReport
from ..settings import ServeOptions
from ..shapes import ReplicaPhase
from .pending_requests import PendingRequest
from .placement import Candidate, Pages

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds before a restart; doubled each time
HEALTHY = 60.0  # seconds; earlier deaths no longer count once an engine has been ready for longer
PATIENCE = 5.0  # seconds for an engine to exit after a request to end, or after it closed its connection
TICK = 0.25  # seconds between two checks of the deadlines
LOADING = 60.0  # seconds; minimum heartbeat timeout of a loading engine
SILENCE = 2.5  # seconds without a heartbeat (one per second) until an engine gets no new requests
AHEAD = 8  # requests sent to an engine beyond the number that it decodes concurrently
Deadline = Literal["start", "heartbeat", "step"]
Commands = SimpleQueue[tuple[Command, ...] | None]


class Listener(Protocol):
    """The receiver of a replica's messages and events: the router."""

    changes: dict[bool, ChangeEngine]
    """The changes that an engine makes once it is loaded, in order."""

    def known(self, facts: Facts) -> Facts:
        """Return the facts of an engine, with those of the server added. The replica's thread calls only this method."""
        ...

    def on_report(self, replica: "Replica", report: StepReport) -> None:
        """Apply the changes of a step."""
        ...

    def on_change(self) -> None:
        """Handle a change of the phase."""
        ...

    def on_end(self, replica: "Replica", deadline: Deadline | None) -> None:
        """Handle the end of the engine. `deadline` is the one that it missed; None if it missed none."""
        ...


class Replica:
    """An engine process as the router sees it: its phase, its load and the requests that were sent to it.

    A thread starts the engine, receives its messages, kills it when it misses a deadline, and starts
    it again. All other methods are called in the event loop.

    A `silent` engine accepts no new requests, because its heartbeats are overdue. The next heartbeat
    makes it ready; without one it is killed.

    Args:
        number: Index among the replicas.
        start: Starts the process of an engine.
        options: Limits on restarts, and the deadlines.
        listener: Gets messages and events, in the event loop.
    """

    def __init__(self, number: int, start: Callable[[], Worker], options: ServeOptions, listener: Listener) -> None:
        self.number, self._start, self._options, self._listener = number, start, options, listener
        self.phase: ReplicaPhase = "loading"
        self.deaths = 0
        self.died: Worker | None = None  # the last process that died
        self.failure = ""  # why the engine could not be created; empty if it could
        self.load = EngineLoad()
        self.info: Facts | None = None
        self.changing = 0  # number of changes that the engine has not answered
        self.sent: dict[int, PendingRequest] = {}
        self.abandoned: set[int] = set()  # ids of requests that only the router ended
        self._pages = Pages(0)
        self._unsent: list[Command] = []
        self._commands: Commands = SimpleQueue()
        self._closing = threading.Event()
        self._ready_age: float | None = None  # the age of the process when the engine was ready
        self._limit = StepLimit(options.engine_timeout)

    async def run(self) -> None:
        """Run the engine, restarting it until it is closed, dies too often or cannot start."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, f"dlstep-replica-{self.number}") as thread:
            await loop.run_in_executor(thread, self._supervise, loop)

    def _supervise(self, loop: asyncio.AbstractEventLoop) -> None:
        deaths, pause = 0, FIRST_PAUSE
        while not self._closing.is_set():
            worker = self._run_once(loop)
            if self._ready_age is not None and worker.age - self._ready_age > HEALTHY:
                deaths, pause = 0, FIRST_PAUSE
            deaths += 1
            if self.failure or deaths > self._options.max_restarts:
                return
            self._closing.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _run_once(self, loop: asyncio.AbstractEventLoop) -> Worker:
        """Run one engine until it ends."""
        worker = self._start()
        self._ready_age, missed, leaving = None, None, 0.0
        self._limit = StepLimit(self._options.engine_timeout)
        commands = self._commands = Commands()
        writer = threading.Thread(target=_write, args=(worker.connection, commands), name="dlstep-writer", daemon=True)
        writer.start()
        if self._closing.is_set():
            commands.put(None)  # `close` may have put its None into the previous queue
        for passed in watch([worker], TICK):
            self._receive(worker, loop)
            if worker.ended:
                break
            if self._closing.is_set():
                leaving += passed
                # It reads no commands while it loads.
                if leaving > PATIENCE or worker.silence > SILENCE or self._ready_age is None:
                    break
            elif missed is None and (overdue := self._overdue(worker)) is not None:
                missed, reason = overdue
                worker.kill(f"{reason} and was killed")
        if not self._closing.is_set():
            loop.call_soon_threadsafe(self.set_silent, True)
        worker.end(PATIENCE if worker.ended else 0.0)
        disconnect(worker.connection)  # a process that the engine forked may still hold the other end
        commands.put(None)
        writer.join()
        worker.connection.close()
        if not self._closing.is_set():
            asyncio.run_coroutine_threadsafe(self._record_death(worker, missed), loop).result()
        return worker

    def _receive(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        """Pass the messages of the engine to the event loop, and report whether the engine is silent."""
        for message in worker.inbox:
            match message:
                case EngineFailed():
                    self.failure = message.error
                case Facts():
                    self._ready_age = self._ready_age or worker.age
                    loop.call_soon_threadsafe(self.set_loaded, self._listener.known(message))
                case StepReport():
                    self._limit.note(message.busy_seconds)
                    loop.call_soon_threadsafe(self._listener.on_report, self, message)
        worker.inbox.clear()
        if not self.sent and not self.abandoned:
            worker.standstill = 0.0
        silent = worker.silence > SILENCE
        if self.phase == ("ready" if silent else "silent"):
            loop.call_soon_threadsafe(self.set_silent, silent)

    def _overdue(self, worker: Worker) -> tuple[Deadline, str] | None:
        """Return the deadline that the engine has missed, with a message; None if there is none."""
        options, loading = self._options, self._ready_age is None
        if loading and worker.age >= options.start_timeout:
            return "start", f"was not ready within {options.start_timeout:g} seconds"
        # Heartbeats may be late during loading: importing or compiling can hold the GIL.
        limit = max(options.heartbeat_timeout, LOADING) if loading else options.heartbeat_timeout
        if worker.silence >= limit:
            return "heartbeat", f"sent no heartbeat for {limit:g} seconds"
        if not loading and worker.standstill >= self._limit.seconds:
            return "step", f"finished no forward pass for {self._limit.seconds:g} seconds"
        return None

    async def _record_death(self, worker: Worker, deadline: Deadline | None) -> None:
        LOG.warning("dlstep: %s", worker.reason)
        self.deaths += 1
        self.died = worker
        self.phase = "restarting"
        self._listener.on_end(self, deadline)

    def close(self) -> None:
        """Ask the engine to end; `run` returns once it has."""
        self._closing.set()
        self._commands.put(None)

    def set_silent(self, silent: bool) -> None:
        """Switch between ready and silent as heartbeats become overdue or resume."""
        if self.phase == ("ready" if silent else "silent"):
            self.phase = "silent" if silent else "ready"
            self._listener.on_change()

    def set_loaded(self, info: Facts) -> None:
        """Store the facts of an engine that is loaded or changed. It is ready if it has made all changes and can answer."""
        if self.changing:
            self.changing -= 1
        else:
            for change in self._listener.changes.values():
                self.change(change)
        self.info, self._pages = info, Pages(info.first.config.num_pages)
        self.phase = "unready" if self.changing or info.problem else "ready"
        self._listener.on_change()

    def change(self, change: ChangeEngine) -> None:
        """Send a change."""
        self.changing += 1
        self.command(change)

    def command(self, command: Command) -> None:
        """Queue a command. Commands that a dead engine has not read are lost."""
        if not self._unsent:  # send all commands queued in one turn of the event loop as one message
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(command)

    def _flush(self) -> None:
        if self._unsent:
            self._commands.put(tuple(self._unsent))
            self._unsent.clear()

    def send(self, pending: PendingRequest, now: float) -> None:
        """Send a request to the engine."""
        pending.sent, pending.replica = now, self.number
        pending.keeper = self.number if pending.submit.keeps else None
        self.sent[pending.id] = pending
        self._pages.learn(pending.keys)
        self.command(pending.submit)

    def abandon(self, pending: PendingRequest) -> None:
        """Stop waiting for the engine to end a request, which still counts toward its load."""
        del self.sent[pending.id]
        self.abandoned.add(pending.id)

    def reset(self) -> None:
        """Forget the load, the pages, the commands, the changes and the abandoned requests of an engine that has ended."""
        self.changing, self.load = 0, EngineLoad()
        self._unsent.clear()
        self.abandoned.clear()
        self._pages = Pages(0)

    @property
    def accepts_requests(self) -> bool:
        """Whether the engine is ready and can be sent one more request."""
        if self.phase != "ready" or self.info is None:
            return False
        return len(self.sent) + len(self.abandoned) < self.info.first.config.max_num_reqs + AHEAD

    def candidate(self, keys: tuple[bytes, ...]) -> Candidate:
        """Return its number of requests, and how many leading pages of `keys` it should have."""
        return Candidate(self.number, len(self.sent), self._pages.known(keys))


def _write(connection: Connection, commands: Commands) -> None:
    """Send queued commands up to None, which asks the engine to end. A full pipe blocks until a step ends."""
    with suppress(OSError):  # the engine died, which `watch` notices
        for batch in iter(commands.get, None):
            connection.send(batch)
        connection.send(None)
