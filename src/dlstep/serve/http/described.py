"""The responses of routes in the OpenAPI document: their shapes and their statuses."""

from typing import Any, Union

from ..shapes import ErrorBody, Readiness

Described = dict[int | str, dict[str, Any]]

REFUSALS = {
    400: "A field is invalid; `param` names it.",
    401: "The API key is missing or invalid.",
    403: "The server does not accept this `Host` (`--allowed_hosts`).",
    404: "The model or the request does not exist.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "Not used: validation errors return 400.",
    429: "Too many requests are waiting; `Retry-After` says when to try again.",
    500: "The model failed on this request.",
    503: "The model is loading, the engine is restarting, or the server is shutting down.",
}
BODY = (403, 408, 413)  # errors of the guards, possible for any request
REQUEST_ERRORS = (400, 401, 404, 422, 503)


# An event of a stream is a chunk of an answer or an error; the last event is [DONE].
CHUNK = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
        "object": {"enum": ["text_completion", "chat.completion.chunk"]},
        "choices": {"type": "array", "items": {"type": "object", "required": ["index", "finish_reason"]}},
        "dlstep": {"type": "object", "required": ["index", "step", "nfe"]},  # more fields with drafts and steps
    },
}
# An event of the stream of `/v1/responses`, whose other fields depend on its type.
RESPONSE_EVENT = {"type": "object", "required": ["type", "sequence_number"]}
FAILED = {"type": "object", "required": ["error"]}
JSON_TEXT = {
    "type": "string",
    "contentMediaType": "application/json",
    "contentSchema": {"anyOf": [CHUNK, RESPONSE_EVENT, FAILED]},
}
EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"anyOf": [{"const": "[DONE]"}, JSON_TEXT]}}}


def answered(model: type, *refusals: int) -> Described:
    """Return the responses of a route: its answer, its errors, and the errors of the guards."""
    errors: Described = {status: {"description": REFUSALS[status], "model": ErrorBody} for status in (*BODY, *refusals)}
    return {200: {"description": model.__doc__, "model": model}} | errors


def streamed(*models: type) -> Described:
    """Return the responses of a route that returns one of these models or a stream."""
    responses = answered(models[0], *REQUEST_ERRORS, 429, 500)
    responses[200] |= {
        "model": Union[models],  # noqa: UP007 - a union of a variable number of types
        "description": "The answers; with `stream`, server-sent events.",
        "content": {"text/event-stream": {"itemSchema": EVENT}},
    }
    return responses


READY = answered(Readiness) | {503: {"description": REFUSALS[503], "model": Readiness}}
METRICS: Described = {status: {"description": REFUSALS[status]} for status in BODY}
