"""The HTTP process's end of the pipe: one task writes, one thread reads, and an engine that died is started again."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread

from .engine_process import Host
from .messages import Card, Command, Failed, Message

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds before an engine is started again; twice as long each time
HEALTHY = 60.0  # seconds after which earlier deaths count no more


class Link:
    """Keeps an engine running and carries messages to and from it. Everything is called in the event loop.

    `heard` takes each message, `died` is told of each death before the next start.
    """

    def __init__(self, host: Host, max_restarts: int, heard: Callable[[Message], None], died: Callable[[], None]) -> None:
        self._host, self._max_restarts, self._heard, self._died = host, max_restarts, heard, died
        self._commands: asyncio.Queue[Command | None] = asyncio.Queue()
        self._closing = asyncio.Event()
        self._ready_since: float | None = None
        self._renewing = asyncio.Event()
        self.failure = ""  # why the last engine could not be made

    def send(self, command: Command) -> None:
        """Let a command go out with the next message; what an engine that died has not read is lost."""
        self._commands.put_nowait(command)

    def close(self) -> None:
        """Ask the engine to end; `run` returns once it has."""
        self._closing.set()
        self._commands.put_nowait(None)

    def renew(self) -> None:
        """Ask the engine to end, and start another one in its place; this counts as no death."""
        self._renewing.set()
        self._commands.put_nowait(None)

    async def run(self) -> None:
        """Start the engine, and again when it dies; return when it was asked to end, or died too often or in its making."""
        loop, deaths, pause = asyncio.get_running_loop(), 0, FIRST_PAUSE
        self.failure = ""
        while not self._closing.is_set():
            if await self._life():
                deaths, pause = 0, FIRST_PAUSE
                continue
            if self._ready_since is not None and loop.time() - self._ready_since > HEALTHY:
                deaths, pause = 0, FIRST_PAUSE
            deaths += 1
            if self.failure or deaths > self._max_restarts:
                return
            if not self._closing.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _life(self) -> bool:
        """One engine, from its start to its end; whether that end was asked for, so that another one follows at once."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._commands, self._ready_since = asyncio.Queue(), None
        self._renewing.clear()
        pipe = await asyncio.to_thread(self._host.start)

        def read() -> None:
            try:
                while True:
                    loop.call_soon_threadsafe(self._hear, pipe.recv())
            except (EOFError, OSError):
                loop.call_soon_threadsafe(ended.set)

        reader = Thread(target=read, name="dlstep-reader", daemon=True)
        reader.start()
        writer = asyncio.create_task(self._write(pipe))
        if self._closing.is_set():
            self._commands.put_nowait(None)  # the queue that `close` knew is gone
        waits = [asyncio.create_task(event.wait()) for event in (ended, self._closing, self._renewing)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        renewed = self._renewing.is_set()
        if not self._closing.is_set() and not renewed:
            self._died()
        await asyncio.to_thread(self._host.end)
        await ended.wait()
        for task in (*waits, writer):
            task.cancel()
        await asyncio.wait([*waits, writer])
        await asyncio.to_thread(reader.join)
        pipe.close()
        return renewed

    def _hear(self, message: Message) -> None:
        match message:
            case Failed():
                self.failure = message.error
            case Card():
                self._ready_since = asyncio.get_running_loop().time()
            case _:
                pass
        self._heard(message)

    async def _write(self, pipe: Connection) -> None:
        """Send what is queued, all of it at once. A pipe holds little: sending waits for the engine's step, in a thread."""
        loop, commands = asyncio.get_running_loop(), self._commands
        with ThreadPoolExecutor(1, "dlstep-writer") as thread:
            while True:
                batch = [await commands.get()]
                while not commands.empty():
                    batch.append(commands.get_nowait())
                message = None if None in batch else tuple(batch)
                try:
                    await loop.run_in_executor(thread, pipe.send, message)
                except OSError:  # it died; the reader knows
                    return
