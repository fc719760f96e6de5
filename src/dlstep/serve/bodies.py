"""From the bytes of a request's body to its checked fields. Large bodies are read in a thread: a megabyte takes up to 0.2 s."""

import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from .errors import ApiError, invalid
from .worker import WorkerThread

LARGE = 1 << 14  # bytes of a body that the event loop does not read itself; fewer take less than the way to a thread and back

LONGEST = 80  # characters of a type in a message


class CheckedRequest(Request):
    """A request whose body has been read and checked: FastAPI is given the fields in place of JSON."""

    fields: Any = None

    async def json(self) -> Any:
        """Return the checked fields."""
        return self.fields


class CheckedRoute(APIRoute):
    """A route whose parameter `body` is read and checked here, in the worker thread of the application where it is large."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler
        adapter: TypeAdapter[Any] = TypeAdapter(get_type_hints(self.endpoint)["body"])

        async def checked(request: Request) -> Response:
            _check_type(request)
            worker: WorkerThread = request.app.state.worker
            given = CheckedRequest(request.scope, request.receive)
            content = await given.body()
            large = len(content) > LARGE
            given.fields = await worker.run(fields_of, content, adapter) if large else fields_of(content, adapter)
            return await handler(given)

        return checked


def fields_of(content: bytes, adapter: TypeAdapter[Any]) -> Any:
    """Return the checked fields of a body. Raises ApiError naming the first field that is wrong."""
    try:
        return adapter.validate_python(json.loads(content))
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_context=False, include_input=False)) from None
    except RecursionError:
        raise ApiError(400, "the body nests lists or objects too deeply to be read", code="invalid_json") from None
    except ValueError as error:
        raise ApiError(400, _unreadable(content, error), code="invalid_json") from None


def _unreadable(content: bytes, error: ValueError) -> str:
    """Say why a body could not be read as JSON."""
    if not content:
        return "the body is empty: send a JSON object"
    if "digits" in str(error):
        return f"the body holds a whole number of more than {sys.get_int_max_str_digits()} digits, and none may have so many"
    return "the body is no JSON"


def _check_type(request: Request) -> None:
    """Raise ApiError for a body that is not declared as JSON.

    Without a Content-Type it is taken for JSON, unless a browser sends it: a page of another origin may send bodies without
    a type, or with that of a form, to any server without asking it first (CORS).
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    if not kind and "origin" not in request.headers:
        return
    given = f"the Content-Type is {kind[:LONGEST]}" if kind else "there is no Content-Type"
    raise ApiError(400, f"{given}: send the body with Content-Type: application/json", code="invalid_content_type")
