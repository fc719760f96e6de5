"""Guards for every request: checks of Host, API key and body, and threads for work whose size clients control.

uvicorn is configured without websockets and lifespan events, so every scope is an HTTP request.
"""

import asyncio
from collections import Counter as Counts, defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from hmac import compare_digest
from ipaddress import ip_address
from threading import Event
from typing import Any, TypeVar, TypeVarTuple, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from prometheus_client import Counter
from pydantic import TypeAdapter
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...core import Refused
from ...engine.step_limit import process_limit
from ..settings import ServeOptions
from .errors import refused
from .schema import LARGE, fields_of

OPEN = ("/health", "/ready", "/version", "/metrics")  # for load balancers and Prometheus
LOCAL_NAMES = ("localhost", "*.localhost")
LONGEST = 120  # characters of a header in a message
PAGE = "/page/"  # public files, like `/` itself; the page asks the user for the key


Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class Guard:
    """Middleware that rejects requests with an unknown Host, without a valid API key, or on a connection above the limit.

    A malicious page can point its domain at this machine (DNS rebinding) to become same-origin with
    the server, but the browser still sends that domain as `Host`. IP addresses always pass, because
    rebinding needs a domain name. The guard stores the key's number as `owner`, never the key.

    Args:
        app: The application that gets the accepted requests.
        names: Allowed host names, like `chat.example.com` or `*.example.com`; empty: any.
        keys: Valid API keys; empty: none is required.
        others: Paths with other keys, which are valid nowhere else.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str], keys: Sequence[str], others: Mapping[str, Sequence[str]]) -> None:
        self._app, self._names, self._keys, self._others = app, [name.lower() for name in names], keys, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "lifespan":  # of another server than `dlstep serve`, such as Ray's
            await self._app(scope, receive, send)
            return
        headers, answer, path = Headers(scope=scope), self._app, scope["path"]
        keys = self._others.get(path.strip(), self._keys)  # a route also matches its path with a line feed at the end
        owner = _owner(headers.get("authorization") or f"Bearer {headers.get('x-api-key', '')}", keys)
        if not self._allows(name := _host_of(headers.get("host", ""))):
            message = f"the Host {name[:LONGEST]!r} is not allowed: add it to --allowed_hosts"
            answer = refused("", "host_not_allowed", message)
        elif not (owner or path in (*OPEN, "/") or path.startswith(PAGE) or scope["method"] == "OPTIONS"):
            answer = refused("", "invalid_api_key", "send a valid API key: Authorization: Bearer KEY")
        elif "crowded" in scope.get("state", ()) and path not in OPEN:
            answer = refused("", "too_many_connections", "too many connections are open: try again later")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # uvicorn sends no body to HEAD
        await answer({**scope, "method": method, "owner": owner or "key-0"}, receive, send)

    def _allows(self, name: str) -> bool:
        """Return whether a Host is allowed. Only HTTP/1.0, which no browser sends, lacks it."""
        if not self._names or not name or _is_address(name):
            return True
        return any(name == known or (known.startswith("*.") and name.endswith(known[1:])) for known in self._names)


def _owner(header: str, keys: Sequence[str]) -> str | None:
    """Return the owner of a key; None if it is invalid. Compares with every key in constant time (timing attacks)."""
    if not keys:
        return "key-0"
    scheme, _, key = header.partition(" ")
    sent = key.strip().encode("latin-1")  # raw bytes: Starlette decodes headers as Latin-1
    equal = [compare_digest(known.encode(), sent) for known in keys]
    return f"key-{equal.index(True)}" if any(equal) and scheme.lower() == "bearer" else None


def _host_of(header: str) -> str:
    """Return the name or address in a Host header, without the port."""
    name = header.strip().lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def hosts_of(options: ServeOptions) -> tuple[str, ...]:
    """Return the allowed names of the server; empty if any name is allowed."""
    if options.allowed_hosts:
        return () if "*" in options.allowed_hosts else options.allowed_hosts
    local = options.host == "localhost" or (_is_address(options.host) and ip_address(options.host).is_loopback)
    return LOCAL_NAMES if local else ()


class WorkerThread:
    """A single thread with a bounded queue.

    Args:
        name: Name of the thread.
        most: Maximum number of running and waiting tasks; further tasks get status 429.
        refused: Counter of these rejected tasks.
        limit: Maximum seconds of a task that may call user code, after which the process ends; None: no limit.
    """

    WAITS = "requests are waiting to be read or encoded"

    def __init__(self, name: str, most: int, refused: Counter, limit: float | None = None) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._most, self._refused, self._limit = most, refused, limit
        self._counts: Counts[str] = Counts()

    async def run(self, function: Callable[[*Args], Result], *args: *Args) -> Result:
        """Run a function in the thread, return its result. Raises Refused if the queue is full."""
        with self._counted(""):
            return await asyncio.wrap_future(self._thread.submit(self._limited, function, *args))

    def _limited(self, function: Callable[[*Args], Result], *args: *Args) -> Result:
        with nullcontext() if self._limit is None else process_limit(self._limit):
            return function(*args)

    @contextmanager
    def _counted(self, owner: str) -> Iterator[None]:
        """Count a task of an owner during the block. Raises Refused, and increments `refused`, if no task may be added."""
        tasks = self._counts[owner]
        if tasks >= self._most:
            self._refused.inc()
            raise Refused("", "queue_full", f"{tasks} {self.WAITS}: try again later")
        self._counts[owner] += 1
        try:
            yield
        finally:
            self._counts[owner] -= 1


class FairWorker(WorkerThread):
    """A single thread for tasks that take seconds; API keys take turns, each with at most `most` tasks.

    `stop(event)` ends the task that was called with `event`, so that it does not outlive its caller.
    """

    WAITS = "requests of this API key wait for the compilation of a constraint"

    def __init__(self, name: str, most: int, refused: Counter, stop: Callable[[Event], None]) -> None:
        super().__init__(name, most, refused)
        self._stop = stop
        # One task of each key waits for the thread, in order of arrival; its other tasks wait for that task.
        self._turn, self._turns = asyncio.Lock(), defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def run_for(self, owner: str, function: Callable[[Event], Result]) -> Result:
        """Run a function in the thread, return its result. Raises Refused if the owner has too many tasks."""
        event = Event()
        with self._counted(owner):
            async with self._turns[owner], self._turn:
                try:
                    return await asyncio.wrap_future(self._thread.submit(function, event))
                finally:
                    self._stop(event)


class CheckedRequest(Request):
    """A request with a limited, parsed and validated body: FastAPI gets its fields instead of JSON."""

    fields: Any = None

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the parts of the body. Raises Refused if it is too large."""
        most, size = self.app.state.options.max_body_bytes, 0
        too_large = Refused("", "body_too_large", f"the body is larger than {most} bytes")
        if int(self.headers.get("content-length", "0")[:20]) > most:
            raise too_large  # before the server asks the client to send it
        async for part in super().stream():
            size += len(part)
            if size > most:
                raise too_large
            yield part

    async def content(self) -> bytes:
        """Return the body. Raises Refused if it is too large or does not arrive in time."""
        seconds = self.app.state.options.body_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self.body()
        except TimeoutError as error:
            raise Refused("", "body_timeout", f"the body did not arrive within {seconds:g} seconds") from error

    async def json(self) -> Any:
        """Return the validated fields."""
        return self.fields


class CheckedRoute(APIRoute):
    """A route that reads and validates its `body` parameter itself, large bodies in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the request handler."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler
        required = self.body_field.field_info.is_required()
        adapter: TypeAdapter[Any] = TypeAdapter(get_type_hints(self.endpoint, include_extras=True)["body"])

        async def checked(request: Request) -> Response:
            _check_headers(request)
            worker: WorkerThread = request.app.state.worker
            parsed = CheckedRequest(request.scope, request.receive)
            content = await parsed.content() or b"{}" * (not required)
            large = len(content) > LARGE
            parsed.fields = await worker.run(fields_of, content, adapter) if large else fields_of(content, adapter)
            return await handler(parsed)

        return checked


def _check_headers(request: Request) -> None:
    """Raise Refused if the Content-Type is not JSON, or if the body is compressed.

    A body without a Content-Type is parsed as JSON, unless a browser sent it (the request then has an
    `Origin`). Browsers let pages of other origins send such bodies, and form bodies, to any server
    without a preflight request (CORS).
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise Refused("", "invalid_content_encoding", f"the Content-Encoding is {coding[:LONGEST]}: send the body uncompressed")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    if not kind and "origin" not in request.headers:
        return
    problem = f"the Content-Type is {kind[:LONGEST]}" if kind else "there is no Content-Type"
    raise Refused("", "invalid_content_type", f"{problem}: send the body with Content-Type: application/json")
