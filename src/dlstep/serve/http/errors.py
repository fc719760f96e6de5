"""Errors in OpenAI's format. No error body contains a stack trace or a path."""

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ...core import STATUS, Code, Fields, Refusal, Refused
from ...core.checks import Json, did_you_mean, short
from ..router.pending_requests import PendingRequest

FAULT = "the server failed on this request"
LONGEST = 500  # characters of a message, which may quote the request
RETRY = {"Retry-After": "1"}  # seconds
# Headers of responses by status. The client has not sent its body if the status is 408.
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}, 429: RETRY, 503: RETRY}
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
    f"guided_{kind}": f'give structured_outputs={{"{kind}": ...}} instead' for kind in ("json", "regex", "choice", "grammar")
} | {
    "previous_response_id": "dlstep stores no responses: send the items of the earlier turns in input, and leave this out",
}


# Names of fields in bodies, by regexes of their names in Python. All other fields have the same name.
NAMES = {
    r"(canvas|pinned|processors|max_nfe|max_repetition_run|end_reserve)": r"dlstep.\1",
    "pins": "dlstep.pinned",
    "strategy_options|sequence": "dlstep",
    "decoding_strategy": "model",
}
# Codes of pydantic's errors. All other errors are about types.
CODES: dict[str, Code] = {
    "extra_forbidden": "unknown_field",
    "finite_number": "out_of_range",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "json_invalid": "invalid_json",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
    "literal_error": "invalid_value",
    "none_required": "unsupported",
    "string_pattern_mismatch": "invalid_value",
    "string_too_long": "too_long",
    "string_too_short": "out_of_range",
    "too_short": "out_of_range",
}


@contextmanager
def renaming(names: Mapping[str, str], options: Container[str] = ()) -> Iterator[None]:
    """Rename the fields of refusals that the `with` block raises.

    `names` maps regexes of fields, or of their first parts, to replacements. Fields in `options` belong to `dlstep`.
    """
    try:
        yield
    except Refused as error:
        field, code, message = error.refusal
        if field in options:
            field = f"dlstep.{field}"
        for old, new in names.items():
            field = re.sub(rf"^(?:{old})(?![^.])", new, field)
        raise Refused(field, code, message) from error


def body_of(refusal: Refusal) -> Json:
    """Return the body of a refusal, in a format that OpenAI's and Anthropic's clients read."""
    status, message = STATUS[refusal.code], str(refusal)
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]} ..."
    param = refusal.field[:LONGEST] or None
    return {"type": "error", "error": {"message": message, "type": kind, "param": param, "code": refusal.code}}


def refused(field: str, code: Code, message: str) -> Response:
    """Return the response to a refused request."""
    status = STATUS[code]
    return json_response(body_of(Refusal(field, code, message)), status, HEADERS.get(status))


def first_fault(pending_requests: Iterable[PendingRequest]) -> Refusal | None:
    """Return the fault of the first request that failed; None if none did."""
    return next((fault for pending in pending_requests if (fault := fault_of(pending)) is not None), None)


def fault_of(pending: PendingRequest) -> Refusal | None:
    """Return the fault of a request; None if its answer is usable."""
    return Refusal("", pending.fault, pending.error) if pending.fault else None


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response in ASCII, because texts may contain lone surrogates."""
    return Response(json.dumps(body, allow_nan=False), status, headers, media_type="application/json")


def invalid(errors: Sequence[Fields], known: Iterable[str] = ()) -> Refused:
    """Return the first error that pydantic found in a body, as Refused. `known` are the fields of the body."""
    first = errors[0]
    # Drop the names of models that pydantic tried: field names do not start with a capital letter.
    place = [str(part) for part in first["loc"] if not str(part)[:1].isupper()]
    # Drop the names of union alternatives that pydantic tried, such as `list[str]`.
    fields = [part for part in place if part.isidentifier() or part.isdigit()]
    own = first["type"] in STATUS  # raised by `wrong`, or a type of pydantic with the same name
    code: Code = first["type"] if own else CODES.get(first["type"], "invalid_type")
    message = first["msg"]
    if fields and fields[0] in UNSUPPORTED:
        code, message = "unsupported", UNSUPPORTED[fields[0]]
    elif code == "unknown_field":
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
    elif not own and "input" in first and isinstance(first["input"], str | int | float | None):
        message = f"{message}, got {short(first['input'])}"
    return Refused(".".join(fields), code, message)


def response_of(request: Request, error: Exception) -> Response:
    """Return the response to an exception; the stack trace of an unexpected one goes to stderr only."""
    match error:
        case Refused(refusal=refusal):
            return refused(*refusal)
        case RequestValidationError():  # of a path or a query
            return refused(*invalid(error.errors()).refusal)
        case HTTPException(status_code=status, headers=headers):
            path, missing = request.url.path, status != 405
            message = f"there is nothing at {path}" if missing else f"{path} does not accept {request.method}"
            response = refused("", "path_not_found" if missing else "method_not_allowed", message)
            response.headers.update(headers or {})
            return response
        case _:  # also ClientDisconnect, whose response is never sent
            return refused("", "internal_error", FAULT)
