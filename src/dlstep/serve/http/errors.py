"""Errors in OpenAI's format. No error body contains a stack trace or a path."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ...core.checks import did_you_mean, short
from ..router.pending_requests import PendingRequest
from ..router.router import NotReady, QueueFull
from ..shapes import ErrorBody, ErrorDetail

LONGEST_NAME = 40  # characters of an option's name: messages shorten longer ones
RETRY_SECONDS = 1
FAULT = "the server failed on this request"
LONGEST = 500  # characters of a message, which may quote the request
TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}

# Messages for fields with several types: pydantic would report one error per type.
EXPECTED = {
    "prompt": "must be a text, a list of token ids, a list of texts, or a list of lists of token ids; none may be empty",
    "stop": "must be a text or a list of at most 64 texts, of 1 to 1024 characters each",
    "content": "must be a text or a list of parts of type text",
    "tool_choice": 'must be "none", "auto", "required", {"type": "function", "function": {"name": ...}} or allowed_tools',
}
# Messages for fields of other servers, whatever their value is.
UNSUPPORTED = {
    f"guided_{kind}": f'give structured_outputs={{"{kind}": ...}} instead' for kind in ("json", "regex", "choice")
} | {
    "guided_grammar": "dlstep does not support grammars: give structured_outputs with a regex or a JSON schema",
    "previous_response_id": "dlstep stores no responses: send the items of the earlier turns in input, and leave this out",
}


class ApiError(Exception):
    """An error response: status, message, invalid field (`param`) and machine-readable `code`."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry_after = status, message, param, code, retry_after

    @property
    def body(self) -> ErrorBody:
        """The error in a format that OpenAI's and Anthropic's clients read."""
        message = self.message if len(self.message) <= LONGEST else f"{self.message[:LONGEST]} ..."
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return ErrorBody(type="error", error=ErrorDetail(message=message, type=kind, param=self.param, code=self.code))

    @property
    def response(self) -> Response:
        """The error as a response."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        elif self.status == 408:  # the client has not sent its body
            headers["Connection"] = "close"
        return json_response(self.body, self.status, headers)


@contextmanager
def refusing(param: str) -> Iterator[None]:
    """Turn a ValueError in the `with` block into an ApiError with status 400 about the field `param`."""
    try:
        yield
    except ValueError as error:
        raise ApiError(400, str(error), param=param) from error


def first_fault(pending_requests: Iterable[PendingRequest]) -> ApiError | None:
    """Return the error of the first request that failed; None if none did."""
    return next((fault for pending in pending_requests if (fault := fault_of(pending)) is not None), None)


def fault_of(pending: PendingRequest) -> ApiError | None:
    """Return the error that a request failed with; None if its answer is usable."""
    match pending.fault:
        case "":
            return None
        case "queue_timeout":
            return ApiError(429, pending.error, code="queue_timeout", retry_after=RETRY_SECONDS)
        case "engine_died" | "engine_timeout" | "not_ready":
            return ApiError(503, pending.error, code=pending.fault, retry_after=RETRY_SECONDS)
        case "engine_error":
            return ApiError(500, pending.error, code="engine_error")


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response in ASCII, because texts may contain lone surrogates."""
    return Response(json.dumps(body, allow_nan=False), status, headers, media_type="application/json")


def invalid(errors: Sequence[Mapping[str, Any]], known: Iterable[str] = ()) -> ApiError:
    """Return the first of the errors that pydantic found in a body with the fields `known`, as an ApiError."""
    first = errors[0]
    # Drop the names of models that pydantic tried: field names do not start with a capital letter.
    place = [str(part) for part in first["loc"] if part != "body" and not str(part)[:1].isupper()]
    # Drop the names of union alternatives that pydantic tried, such as `list[str]`.
    fields = [part for part in place if part.isidentifier() or part.isdigit()]
    param = ".".join(fields)[:LONGEST] or None
    message = first["msg"].removeprefix("Value error, ")
    if fields and fields[0] in UNSUPPORTED:
        message = UNSUPPORTED[fields[0]]
    elif first["type"] == "extra_forbidden":
        names = tuple(known) if len(place) == 1 else ()  # of the fields next to it
        meant = did_you_mean(str(place[-1]), names)
        if "dlstep" in names:
            options = f"{meant} Options" if meant else "options"
            message = f"this field is unknown; {options} of the decoding strategy belong in the object dlstep"
        else:
            message = f"this field is unknown; {meant or 'leave it out'}"
    elif place and (field := next((part for part in reversed(fields) if part in EXPECTED), None)):
        message = EXPECTED[field]
    elif first["type"] == "none_required":
        message = "dlstep does not support this: leave it out or set it to null"
    elif not place and first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        message = "the body must be a JSON object"
    elif message.startswith("Input should") and "input" in first and isinstance(first["input"], str | int | float | None):
        message = f"{message}, got {short(first['input'])}"
    return ApiError(400, f"{param}: {message}" if param else message, param=param, code=first["type"])


def response_of(request: Request, error: Exception) -> Response:
    """Return the response to an exception; the stack trace of an unexpected one goes to stderr only."""
    match error:
        case ApiError():
            return error.response
        case QueueFull():
            return ApiError(429, str(error), code="queue_full", retry_after=RETRY_SECONDS).response
        case NotReady():
            return ApiError(503, str(error), code="not_ready", retry_after=RETRY_SECONDS).response
        case RequestValidationError():  # of a path or a query
            return invalid(error.errors()).response
        case HTTPException(status_code=status, detail=detail, headers=headers):
            path = request.url.path
            messages = {404: f"there is nothing at {path}", 405: f"{path} does not accept {request.method}"}
            response = ApiError(status, messages.get(status, str(detail))).response
            response.headers.update(headers or {})
            return response
        case _:  # also ClientDisconnect, whose response is never sent
            return ApiError(500, FAULT, code="internal_error").response


def mentions(message: str, name: str) -> bool:
    """Return whether a message contains `name`. Long names would fill the pattern cache of `re`."""
    return 0 < len(name) <= LONGEST_NAME and re.search(rf"\b{re.escape(name)}\b", message) is not None
