"""Guards for every request: checks of Host, API key and body, and threads for work whose size clients control.

uvicorn is configured without websockets and lifespan events, so every scope is an HTTP request.
"""

import asyncio
from collections import Counter as Counts, defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from hmac import compare_digest
from ipaddress import ip_address
from threading import Event
from typing import Any, ParamSpec, TypeVar, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from prometheus_client import Counter
from pydantic import TypeAdapter
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...engine.step_limit import process_limit
from ..settings import ServeOptions
from .errors import RETRY_SECONDS, ApiError
from .schema import LARGE, fields_of

OPEN = ("/health", "/ready", "/version", "/metrics")  # for load balancers and Prometheus
LOCAL_NAMES = ("localhost", "*.localhost")
LONGEST_TYPE = 120  # characters of a Content-Type in a message
LONGEST_HOST = 100  # characters of a host name in a message
PAGE = "/page/"  # public files, like `/` itself; the page asks the user for the key


Params = ParamSpec("Params")
Result = TypeVar("Result")


def is_open(path: str) -> bool:
    """Return whether a path needs no API key."""
    return path in (*OPEN, "/") or path.startswith(PAGE)


class HostGuard:
    """Middleware that rejects requests whose `Host` is not one of the server's names.

    A malicious page can point its domain at this machine (DNS rebinding) to become same-origin with
    the server, but the browser still sends that domain as `Host`. IP addresses always pass, because
    rebinding needs a domain name.
    """

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self._app, self._names = app, tuple(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if not self._allows(name := _host_of(Headers(scope=scope).get("host", ""))):
            message = f"the Host {name[:LONGEST_HOST]!r} is not allowed: add it to --allowed_hosts"
            await ApiError(403, message, code="host_not_allowed").response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allows(self, name: str) -> bool:
        """Return whether a Host is allowed. Only HTTP/1.0, which no browser sends, lacks it."""
        if not name or _is_address(name):
            return True
        return any(name == known or (known.startswith("*.") and name.endswith(known[1:])) for known in self._names)


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


class KeyGuard:
    """Middleware that requires an API key. It stores the key's number as `owner`, never the key."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app, self._keys = app, tuple(key.encode() for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        scope["owner"] = "key-0"
        if self._keys and not is_open(scope["path"]) and scope["method"] != "OPTIONS":
            scope["owner"] = self._owner(Headers(scope=scope).get("authorization", ""))
            if scope["owner"] is None:
                refused = ApiError(401, "send a valid API key: Authorization: Bearer KEY", code="invalid_api_key")
                await refused.response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _owner(self, header: str) -> str | None:
        """Return the owner of a key. Compares with every key in constant time (timing attacks)."""
        scheme, _, key = header.partition(" ")
        sent = key.strip().encode("latin-1")  # raw bytes: Starlette decodes headers as Latin-1
        equal = [compare_digest(known, sent) for known in self._keys]
        return f"key-{equal.index(True)}" if any(equal) and scheme.lower() == "bearer" else None


class BodyGuard:
    """Middleware that reads the request body, limited in size and time, before the application."""

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or reject it."""
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._body(scope, receive)
        except ApiError as error:
            await error.response(scope, receive, send)
            return
        except TimeoutError:
            refused = ApiError(408, f"the body did not arrive within {self._seconds:g} seconds", code="body_timeout")
            await refused.response(scope, receive, send)
            return
        if body is None:
            return  # the client disconnected
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return left.pop() if left else await receive()

        await self._app(scope, again, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body; None if the client disconnects. Raises ApiError if it is too large."""
        too_large = ApiError(413, f"the body is larger than {self._most} bytes", code="body_too_large")
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > self._most:
            raise too_large
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._most:
                raise too_large
            if not message.get("more_body", False):
                return bytes(body)


class WorkerThread:
    """A single thread with a bounded queue.

    Args:
        name: Name of the thread.
        most: Maximum number of running and waiting tasks; further tasks get status 429.
        refused: Counter of these rejected tasks.
        limit: Maximum seconds of a task that may call user code, after which the process ends; None: no limit.
    """

    def __init__(self, name: str, most: int, refused: Counter, limit: float | None = None) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._most, self._refused, self._limit = most, refused, limit
        self._tasks = 0

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Run a function in the thread, return its result. Raises ApiError if the queue is full."""
        _check_room(self._tasks, self._most, self._refused, "requests are waiting to be read or encoded")
        self._tasks += 1
        task = self._thread.submit(self._limited, function, *args, **kwargs)
        task.add_done_callback(self._done)
        return await asyncio.wrap_future(task)

    def _limited(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        with nullcontext() if self._limit is None else process_limit(self._limit):
            return function(*args, **kwargs)

    def _done(self, task: object) -> None:
        del task
        self._tasks -= 1


class FairWorker:
    """A single thread for tasks that take seconds; API keys take turns. A task ends when its caller is cancelled.

    Args:
        name: Name of the thread.
        most: Maximum number of running and waiting tasks of a key; further tasks get status 429.
        refused: Counter of these rejected tasks.
        stop: Ends the task that was called with this event.
    """

    def __init__(self, name: str, most: int, refused: Counter, stop: Callable[[Event], None]) -> None:
        self._thread, self._most, self._refused, self._stop = ThreadPoolExecutor(1, name), most, refused, stop
        self._counts: Counts[str] = Counts()
        # One task of each key waits for the thread, in order of arrival; its other tasks wait for that task.
        self._turn, self._turns = asyncio.Lock(), defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def run(self, owner: str, function: Callable[[Event], Result]) -> Result:
        """Run a function in the thread, return its result. Raises ApiError if the owner has too many tasks."""
        waits = "requests of this API key wait for the compilation of a constraint"
        _check_room(self._counts[owner], self._most, self._refused, waits)
        self._counts[owner] += 1
        event = Event()
        try:
            async with self._turns[owner], self._turn:
                try:
                    return await asyncio.wrap_future(self._thread.submit(function, event))
                finally:
                    self._stop(event)
        finally:
            self._counts[owner] -= 1


def _check_room(tasks: int, most: int, refused: Counter, waits: str) -> None:
    """Raise ApiError, and count it, if no further task may wait."""
    if tasks >= most:
        refused.inc()
        raise ApiError(429, f"{tasks} {waits}: try again later", code="queue_full", retry_after=RETRY_SECONDS)


class CheckedRequest(Request):
    """A request with a parsed and validated body: FastAPI gets its fields instead of JSON."""

    fields: Any = None

    async def json(self) -> Any:
        """Return the validated fields."""
        return self.fields


class CheckedRoute(APIRoute):
    """A route that parses and validates its `body` parameter itself, large bodies in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the request handler."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler
        adapter: TypeAdapter[Any] = TypeAdapter(get_type_hints(self.endpoint, include_extras=True)["body"])

        async def checked(request: Request) -> Response:
            _check_headers(request)
            worker: WorkerThread = request.app.state.worker
            parsed = CheckedRequest(request.scope, request.receive)
            content = await parsed.body()
            large = len(content) > LARGE
            parsed.fields = await worker.run(fields_of, content, adapter) if large else fields_of(content, adapter)
            return await handler(parsed)

        return checked


def _check_headers(request: Request) -> None:
    """Raise ApiError if the Content-Type is not JSON, or if the body is compressed.

    A body without a Content-Type is parsed as JSON, unless a browser sent it (the request then has an
    `Origin`). Browsers let pages of other origins send such bodies, and form bodies, to any server
    without a preflight request (CORS).
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        message = f"the Content-Encoding is {coding[:LONGEST_TYPE]}: send the body uncompressed"
        raise ApiError(400, message, code="invalid_content_encoding")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    if not kind and "origin" not in request.headers:
        return
    problem = f"the Content-Type is {kind[:LONGEST_TYPE]}" if kind else "there is no Content-Type"
    raise ApiError(400, f"{problem}: send the body with Content-Type: application/json", code="invalid_content_type")
