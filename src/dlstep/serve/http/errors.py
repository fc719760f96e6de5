"""Errors as OpenAI's clients know them. No body shows a stack or a path."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence as Items
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..router.tickets import Ticket
from ..shapes import ErrorBody, ErrorDetail

LONGEST_NAME = 40  # characters of an option's name: messages shorten longer ones
RETRY_SECONDS = 1
LONGEST = 500  # characters of a message, which may quote what was given
TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}

# Fields that take values of several types, in words: the checks of each type alone would say too much.
EXPECTED = {
    "prompt": "must be a text, a list of token ids, or a list of one of both, none of them empty",
    "stop": "must be a text or a list of at most 64 texts, of 1 to 1024 characters each",
    "content": "must be a text or a list of parts of type text",
}


class ApiError(Exception):
    """An answer that is an error: its status, a sentence, the field that is wrong, and a word for programs."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry_after = status, message, param, code, retry_after

    @property
    def body(self) -> ErrorBody:
        """The error in OpenAI's form."""
        message = self.message if len(self.message) <= LONGEST else f"{self.message[:LONGEST]} ..."
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return ErrorBody(error=ErrorDetail(message=message, type=kind, param=self.param, code=self.code))

    @property
    def response(self) -> Response:
        """The error as a response."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return json_response(self.body, self.status, headers)


def first_fault(tickets: Iterable[Ticket]) -> ApiError | None:
    """Return the error of the first ticket of whose answer nothing is worth having."""
    return next((found for ticket in tickets if (found := fault_of(ticket)) is not None), None)


def fault_of(ticket: Ticket) -> ApiError | None:
    """The error that a ticket ended by, if nothing of its answer is worth having."""
    match ticket.fault:
        case "":
            return None
        case "queue_timeout":
            return ApiError(429, ticket.error, code="queue_timeout", retry_after=RETRY_SECONDS)
        case "engine_died" | "engine_timeout":
            return ApiError(503, ticket.error, code=ticket.fault, retry_after=RETRY_SECONDS)
        case "engine_error":
            return ApiError(500, ticket.error, code="engine_error")


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response. Only ASCII is sent: texts of clients may hold what UTF-8 cannot."""
    return Response(json.dumps(body, allow_nan=False), status, headers, media_type="application/json")


def of_validation(request: Request, error: Exception) -> Response:
    """Return a 400 that names the first invalid field of a path or a query."""
    del request
    assert isinstance(error, RequestValidationError)
    return invalid(error.errors()).response


def invalid(found: Items[Mapping[str, Any]]) -> ApiError:
    """Return the first of the errors that pydantic found in a body."""
    first = found[0]
    # Without the names of the models that a body was tried as: no field begins with a capital letter.
    place = [str(part) for part in first["loc"] if part != "body" and not str(part)[:1].isupper()]
    # The names of fields, without those of the alternatives that a value was tried as.
    fields = [part for part in place if part.isidentifier() or part.isdigit()]
    param = ".".join(fields)[:LONGEST] or None
    message = first["msg"].removeprefix("Value error, ")
    if place and (field := next((part for part in reversed(fields) if part in EXPECTED), None)):
        message = EXPECTED[field]
    if first["type"] == "extra_forbidden":
        message = "this field is unknown; options of the decoding strategy belong into the object dlstep"
    return ApiError(400, f"{param}: {message}" if param else message, param=param, code=first["type"])


def of_http(request: Request, error: Exception) -> Response:
    """Return the error for requests that the framework refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    named = {404: f"there is nothing at {request.url.path}", 405: f"{request.url.path} does not take {request.method}"}
    found = ApiError(error.status_code, named.get(error.status_code, str(error.detail))).response
    found.headers.update(error.headers or {})
    return found


def of_fault(request: Request, error: Exception) -> Response:
    """A fault of the server's own; its stack is on stderr and nowhere else."""
    del request, error
    return ApiError(500, "the server failed on this request", code="internal_error").response


def of_api(request: Request, error: Exception) -> Response:
    """An error that was meant."""
    del request
    assert isinstance(error, ApiError)
    return error.response


def mentions(said: str, name: str) -> bool:
    """Whether a message has this name. `re` keeps patterns: of long names that clients make up that would be gigabytes."""
    return 0 < len(name) <= LONGEST_NAME and re.search(rf"\b{re.escape(name)}\b", said) is not None
