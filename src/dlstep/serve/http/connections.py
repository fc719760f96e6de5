"""Limits on connections: how many are open, and how long a client may take to send a request and to read its answer."""

import sys
from asyncio import Transport
from contextlib import suppress
from heapq import nsmallest
from operator import attrgetter
from socket import SO_SNDBUF, SOL_SOCKET

from uvicorn.protocols.http.h11_impl import H11Protocol

from ..log_lines import LOG
from ..settings import ServeOptions

AT_ONCE = 16  # connections that are accepted in one turn of the event loop; they may exceed the limit for a few turns
# File descriptors for connections above the limit, files, engines (10 each) and the process that compiles constraints.
RESERVED = 256
TICK = 0.25  # seconds between two checks of a connection


def connection_limit(options: ServeOptions) -> int:
    """Return how many connections may be open, after raising the limit on file descriptors (`ulimit -n`) as far as needed."""
    if sys.platform == "win32":  # there is no such limit
        return options.max_connections
    import resource

    needed = options.max_connections + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        with suppress(OSError, ValueError):  # macOS has a lower limit than `hard`
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(needed, soft) - RESERVED
    if most < options.max_connections:
        LOG.warning("dlstep: at most %s connections: raise ulimit -n to %s, or lower --max_connections", max(1, most), needed)
    return max(1, most)


class Connection(H11Protocol):
    """A connection. If too many are open, a new one closes those whose clients have been idle for the longest time."""

    connections: set["Connection"]  # pyright: ignore[reportIncompatibleVariableOverride]
    idle_since = 0.0
    _received = 0  # bytes
    _progress: object = None

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Make room for this connection. If no other is idle, answer only health checks on it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # the application waits until all is sent, so unsent data only shrink
        # Linux accepts more data only once a third of its buffer is free. The default buffer has megabytes, so slow clients
        # would seem idle.
        transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 1 << 16)
        self._tick()
        most, self.limit_concurrency = self.config.limit_concurrency or 0, None
        still = [other for other in self.connections if not other.transport.is_closing()]
        if (excess := len(still) - most) > 0:
            idle = [other for other in still if other is not self and other.check()]
            for other in nsmallest(excess + most // 32, idle, key=attrgetter("idle_since")):
                other.transport.abort()
            if len(idle) < excess:
                self.app_state = {"crowded": True}  # the guard reads it

    def data_received(self, data: bytes) -> None:
        """Count what the client sends."""
        self._received += len(data)
        super().data_received(data)

    def _tick(self) -> None:
        if self in self.connections:
            self.check()
            self.loop.call_later(TICK, self._tick)

    def check(self) -> bool:
        """Return whether it is the client's turn, and close the connection if the client has been idle for too long."""
        cycle, unsent, now = self.cycle, self.transport.get_write_buffer_size(), self.loop.time()
        answering = cycle is not None and not cycle.response_complete
        uploading = answering and cycle.more_body
        idle = unsent > 0 or uploading or not answering
        # Parts of a header are no progress: a request must begin in time.
        progress = cycle, unsent, uploading and self._received
        if not idle or progress != self._progress:
            self._progress, self.idle_since = progress, now
        elif now - self.idle_since >= self.timeout_keep_alive:
            self.transport.abort()  # `close` would wait for the client
        return idle
