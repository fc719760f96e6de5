"""The schema of responses: their shapes and their statuses. Nothing here runs when a request is answered."""

from typing import Any, Literal

from openai.types import Completion
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, ConfigDict

Described = dict[int | str, dict[str, Any]]


class Exact(BaseModel):
    """A response with these fields and no other."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Exact):
    """An error: a sentence, its kind, the field that is wrong, and a word for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Exact):
    """An error in OpenAI's form."""

    error: ErrorDetail


class Cancelled(Exact):
    """A request that ends with what is settled of it."""

    id: str
    cancelled: Literal[True]


class ModelCard(Exact):
    """The model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["dlstep"]
    max_model_len: int


class ModelList(Exact):
    """The list of the one model there is."""

    object: Literal["list"]
    data: list[ModelCard]


class Tokenized(Exact):
    """Token ids of a prompt, with their names where asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Exact):
    """The text of token ids."""

    prompt: str


class Health(Exact):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Exact):
    """Whether requests can be answered, and why not."""

    status: Literal["loading", "ready", "restarting", "draining", "failed"]
    engine_deaths: int
    reason: str | None


class Version(Exact):
    """The version of dlstep."""

    version: str


REFUSALS = {
    400: "A field is wrong; `param` names it.",
    401: "No API key, or a wrong one.",
    404: "No such model, or no such request.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    422: "Never: what is wrong with a body is told by 400.",
    429: "Too many requests wait; `Retry-After` says when to try again.",
    500: "The model failed on this request.",
    503: "The model is loading, the engine starts again, or the server is shutting down.",
}
BODY = (408, 413)  # of the guard that reads bodies, of whatever request
ASKED = (*BODY, 400, 401, 404, 422, 503)
DECODED = (*ASKED, 429, 500)


# An event of a stream is a chunk of an answer or an error; the last one is a word.
CHUNK = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
        "object": {"enum": ["text_completion", "chat.completion.chunk"]},
        "choices": {"type": "array", "items": {"type": "object", "required": ["index", "finish_reason"]}},
        "dlstep": {"type": "object", "required": ["index", "seq", "step", "nfe", "settled", "cells"]},
    },
}
FAILED = {"type": "object", "required": ["error"]}
JSON_TEXT = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": [CHUNK, FAILED]}}
EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"anyOf": [{"const": "[DONE]"}, JSON_TEXT]}}}


def answered(model: type[BaseModel], *refusals: int) -> Described:
    """The responses of a route: its answer, and its errors."""
    errors: Described = {status: {"description": REFUSALS[status], "model": ErrorBody} for status in refusals}
    return {200: {"description": model.__doc__, "model": model}} | errors


def streamed(model: type[BaseModel]) -> Described:
    """The responses of a route that answers whole or as a stream of events."""
    found = answered(model, *DECODED)
    found[200] |= {
        "description": "The answers; with `stream`, events.",
        "content": {"text/event-stream": {"itemSchema": EVENT}},
    }
    return found


COMPLETION = streamed(Completion)
CHAT = streamed(ChatCompletion)
CANCELLED = answered(Cancelled, *BODY, 401, 404, 422)
MODELS = answered(ModelList, *BODY, 401, 503)
TOKENIZED = answered(Tokenized, *ASKED)
DETOKENIZED = answered(Detokenized, *ASKED)
HEALTH = answered(Health, *BODY)
READY = answered(Readiness, *BODY) | {503: {"description": REFUSALS[503], "model": Readiness}}
VERSION = answered(Version, *BODY)
METRICS: Described = {status: {"description": REFUSALS[status]} for status in BODY}
