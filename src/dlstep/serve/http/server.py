"""The uvicorn server that runs the application: how it listens, drains and exits."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread, current_thread, main_thread
from types import FrameType

import uvicorn
from fastapi import FastAPI

from ...core import Refused, Texts
from ...engine.config import RANK_TIMEOUT, EngineConfig
from ...processes import Worker
from ...processes.child import PARENTS_SIGNALS
from ..engine_loop import run_process
from ..log_lines import LOG, LineHandler
from ..router.router import Router
from ..settings import ServeOptions
from .answers import LAST_LINES, RequestLog
from .app import create_app
from .connections import AT_ONCE, Connection, connection_limit

LOCAL = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # address for the browser if all interfaces listen
BACKLOG = 2048  # connections that wait to be accepted
GRACE = 5  # seconds that open connections may take to close after the last answer


def uvicorn_config(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    """Return the configuration of uvicorn, which limits headers and idle connections."""
    return uvicorn.Config(
        app,
        http=Connection,
        loop="asyncio",
        ws="none",
        log_config=None,
        log_level="error",  # its warnings are about requests that it refuses
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=int(max(1, options.idle_timeout)),
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=connection_limit(options),
        backlog=AT_ONCE,
    )


class Server(uvicorn.Server):
    """A server that drains at the first SIGINT, SIGTERM or SIGHUP, and exits immediately at the second."""

    def __init__(
        self,
        router: Router,
        keys: Texts,
        ready: Callable[[], None] = lambda: None,
        admin_keys: Texts = (),
    ) -> None:
        app = create_app(router, keys, admin_keys)
        super().__init__(uvicorn_config(app, router.options))
        self._log: RequestLog = app.state.log
        self._signals = 0
        self._router, self._ready = router, ready
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until asked to end, or until the engine has failed for good."""
        self._loop = asyncio.get_running_loop()
        for number in PARENTS_SIGNALS if current_thread() is main_thread() else ():
            if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(number, self.handle_exit)
        async with self._router:
            watch = asyncio.create_task(self._watch(sockets or ()))
            await super().serve(sockets)
            watch.cancel()
        await asyncio.to_thread(self._log.close)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: uvicorn would restore signal handlers before the engines end. See `serve`."""
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, exit at the second. Engines end with this process."""
        del frame
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + sig)
        self.ask_to_end()

    def ask_to_end(self) -> None:
        """Reject new requests, drain for up to `drain_seconds`, then end. Thread-safe."""
        assert self._loop is not None, "it serves"
        self._ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)

    async def _end(self) -> None:
        LOG.warning("dlstep: shutting down; running requests: %s", self._router.live)
        await self._router.drain()
        self.should_exit = True

    async def _watch(self, sockets: Iterable[socket.socket]) -> None:
        """Report once that the server is ready, and end it when all engines have failed permanently."""
        await self._router.until(lambda: self._router.phase in ("ready", "failed"))
        for listener in sockets:
            listener.listen(BACKLOG)  # asyncio has set the backlog to the number of connections that it accepts in one turn
        if self._router.phase == "ready":
            Thread(target=self._ready, daemon=True).start()  # opening a browser may take long
        await self._router.until(lambda: self._router.phase == "failed")
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ValueError if the address cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ValueError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another address with --host and --port"
        ) from error


def _once_ready(page: str | None) -> None:
    """Exclude all existing objects from garbage collection, and open the page in a browser if requested.

    A large body triggers hundreds of collections, each of which would traverse every loaded module.
    """
    gc.collect()
    gc.freeze()
    if page is not None and not webbrowser.open(page):
        print(f"dlstep: no browser could be opened; the page is at {page}", file=sys.stderr, flush=True)


def serve(config: EngineConfig, options: ServeOptions, *, opens: bool = False) -> int:
    """Serve until a signal arrives. Return the exit code: 1 if the engine died too often, else 0.

    `opens`: open the page in a browser. Raises ValueError for contradictory options, or if the engine
    cannot be created.
    """
    rank_timeout = config.rank_timeout or RANK_TIMEOUT
    if config.tensor_parallel_size > 1 and rank_timeout >= options.engine_timeout:
        message = (
            f"{rank_timeout:g} must be less than engine_timeout={options.engine_timeout:g}: otherwise the server kills an "
            "engine before it can report which rank is lost"
        )
        raise Refused("rank_timeout", "conflict", message)
    starts = [
        partial(Worker, run_process, config, number, name=f"dlstep-engine-{number}") for number in range(options.replicas)
    ]
    keys, admin_keys, router = options.api_keys(), options.admin_keys(), Router(starts, options)
    with listen(options.host, options.port) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        page = f"http://{LOCAL.get(host, shown)}:{port}/"
        server = Server(router, keys, partial(_once_ready, page if opens else None), admin_keys)
        print(f"dlstep: listening on http://{shown}:{port}; /ready shows when the model is loaded", file=sys.stderr, flush=True)
        stderr = LineHandler(2)
        logging.getLogger().addHandler(stderr)
        asyncio.run(server.serve([listener]))
        stderr.stop(LAST_LINES)
    if not router.failure:
        return 0
    if router.not_made_reason:
        raise ValueError(router.failure)
    print(f"dlstep: error: {router.failure}", file=sys.stderr)
    return 1
