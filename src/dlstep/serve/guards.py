"""The guards that every request passes first: its API key, and a body that comes in time and is not too large."""

import asyncio
from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError

OPEN = ("/health", "/ready", "/version", "/metrics")  # for load balancers and Prometheus
PAGE = "/page/"  # files that everybody has, with / itself; the page asks for the key


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in (*OPEN, "/") or path.startswith(PAGE)


class KeyGuard:
    """Asks for an API key and notes whose it is: `owner` is its number, never the key itself."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app, self._keys = app, tuple(key.encode() for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            scope["owner"] = "key-0"
            if self._keys and not is_open(scope["path"]) and scope["method"] != "OPTIONS":
                owner = self._owner(Headers(scope=scope).get("authorization", ""))
                if owner is None:
                    refused = ApiError(401, "give a valid API key: Authorization: Bearer KEY", code="invalid_api_key")
                    await refused.response(scope, receive, send)
                    return
                scope["owner"] = owner
        await self._app(scope, receive, send)

    def _owner(self, header: str) -> str | None:
        """Whose key it is; every key is compared, and takes as long whatever was given."""
        scheme, _, given = header.partition(" ")
        equal = [compare_digest(key, given.strip().encode("utf-8", "replace")) for key in self._keys]
        return f"key-{equal.index(True)}" if any(equal) and scheme.lower() == "bearer" else None


class BodyGuard:
    """Reads the body before anybody else does: bounded in size and in time."""

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._body(scope, receive)
        except ApiError as error:
            await error.response(scope, receive, send)
            return
        except TimeoutError:
            refused = ApiError(408, f"the body did not come within {self._seconds:g} seconds", code="body_timeout")
            await refused.response(scope, receive, send)
            return
        if body is None:
            return  # the client went away
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return left.pop() if left else await receive()

        await self._app(scope, again, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client goes away. Raises ApiError for one that is too large."""
        too_large = ApiError(413, f"the body is larger than {self._most} bytes", code="body_too_large")
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > self._most:
            raise too_large
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > self._most:
                raise too_large
            if not message.get("more_body", False):
                return b"".join(parts)
