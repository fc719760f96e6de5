"""Parsing and validation of request bodies, in a thread for large ones (0.1 s per megabyte)."""

from codecs import BOM_UTF8
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from .errors import ApiError, invalid
from .schema import why_not_json
from .worker import WorkerThread

LARGE = 1 << 14  # bytes; for smaller bodies, a thread costs more than it saves
LONGEST_TYPE = 120  # characters of a Content-Type in a message


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


def fields_of(content: bytes, adapter: TypeAdapter[Any]) -> Any:
    """Return the validated fields of a body. Raises ApiError naming the first invalid field.

    pydantic parses and validates in one pass, so a megabyte of invalid items never becomes a million
    Python objects.
    """
    try:
        return adapter.validate_json(content.removeprefix(BOM_UTF8))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=len(content) <= LARGE)
    if errors[0]["type"] == "json_invalid":
        reason = f"the body is not valid JSON: {why_not_json(errors[0]['msg'])}"
        raise ApiError(400, reason if content else "the body is empty: send a JSON object", code="invalid_json")
    fields = getattr(adapter.core_schema.get("cls"), "model_fields", {})
    raise invalid(errors, fields)


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
