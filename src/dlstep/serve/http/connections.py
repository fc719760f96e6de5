"""Client connections: idle timeouts, a limit on their number, and half-closed connections.

uvicorn closes connections that are idle between two requests. This module adds:

- a timeout for request headers that never end and for answers that the client never reads,
- a limit on the number of connections,
- answers to clients that have closed their sending side but still read.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..settings import ServeOptions

try:
    import resource
except ImportError:  # Windows
    resource = None

GRACE = 5  # seconds that open connections may take to close after the last answer
ACCEPTED = 16  # connections accepted per turn of the event loop, before they are counted
RESERVED = 24  # file descriptors kept free for connections being accepted, pipes of engines, and files
FEWEST = 4  # connections that are always allowed, even with too few file descriptors
READ = 1 << 14  # bytes read per turn: 2,700 chunks of one byte, which take 40 ms
READ_WHOLE = 1 << 18  # the same for a body with a Content-Length
LINGER = 1.0  # seconds to discard the rest of a body after an early answer, so the client gets it
PROBES = (0.0, 0.05, 0.5, 2.0)  # seconds from a client's half-close to each probe


class ConnectionConfig(uvicorn.Config):
    """The uvicorn configuration, with limits on connections."""

    def __init__(self, app: Any, options: ServeOptions) -> None:
        super().__init__(
            app,
            http=Connection,
            loop="asyncio",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            backlog=ACCEPTED,
            timeout_keep_alive=int(max(1, options.idle_timeout)),
            timeout_graceful_shutdown=GRACE,
        )
        self.idle_timeout = options.idle_timeout
        self.max_connections = min(options.max_connections, _room())


def _room() -> int:
    """Return the number of connections that the file descriptors of this process allow."""
    if resource is None:
        return 1 << 30
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 30
    table = next((folder for folder in ("/proc/self/fd", "/dev/fd") if Path(folder).is_dir()), None)
    return max(FEWEST, limit - RESERVED - (32 if table is None else len(os.listdir(table))))


class Connection(H11Protocol):
    """A client connection. `check` closes it when it has been idle for too long."""

    config: ConnectionConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection. Above the limit, close the one that has been idle longest."""
        super().connection_made(transport)
        self._read_at_once(READ)
        self._since, self._unread, self._half_closed = self.loop.time(), 0, False
        if len(self.connections) > self.config.max_connections:
            others = [other for other in self.connections if isinstance(other, Connection)]
            idle = [other for other in others if not other.busy or other.transport.get_write_buffer_size()]
            oldest = min(idle, key=lambda other: other._since, default=self)
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, and set how many may be read in the next turn."""
        super().data_received(data)
        declared = self.busy and all(name != b"transfer-encoding" for name, _ in self.headers)
        self._read_at_once(READ_WHOLE if declared else READ)

    def _read_at_once(self, size: int) -> None:
        self.transport.max_size = size  # type: ignore[attr-defined]  # an attribute of asyncio's socket transports

    @property
    def busy(self) -> bool:
        """Whether a request has arrived whose answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _unsupported_upgrade_warning(self) -> None:
        """Answer over HTTP/1.1 without a warning: uvicorn's would tell the operator to install a WebSocket library."""

    def check(self) -> None:
        """Close the connection if it sent no header, or read nothing, for too long."""
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if unread != self._unread or (self.busy and not unread):
            self._since = now
        self._unread = unread
        answered_early = not self.busy and self.conn.their_state is h11.SEND_BODY
        if now - self._since > (LINGER if answered_early else self.config.idle_timeout):
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Continue with the next request, or close the connection of a client that cannot send one."""
        self._since = self.loop.time()
        super().on_response_complete()
        if self._half_closed:
            self.transport.close()

    def eof_received(self) -> bool:
        """Keep the connection of a client that has closed its sending side and waits for its answer.

        A disconnected client looks the same until the server sends something and gets a reset. The
        server therefore sends probes that clients ignore: an informational response or an SSE comment.
        """
        if not self.busy or self.cycle.more_body or self.scope["http_version"] == "1.0":
            return False
        self._half_closed = True
        for seconds in PROBES:
            self.loop.call_later(seconds, self._probe, self.cycle)
        return True

    def _probe(self, cycle: object) -> None:
        if cycle is not self.cycle or not self.busy or self.transport.is_closing():
            return
        if self.conn.our_state is h11.SEND_RESPONSE:
            self.transport.write(self.conn.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        elif "probe" in self.scope:
            self.transport.write(self.conn.send(h11.Data(data=self.scope["probe"])) or b"")
