"""The schema of responses: their shapes and their statuses. Nothing here runs when a request is answered."""

from typing import Any, Literal, Union

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


class ForkOrigin(Exact):
    """Where a fork begins."""

    request: str
    index: int
    seq: int


class RequestRow(Exact):
    """A request: what it took so far, and whether its steps are kept."""

    id: str
    status: Literal["running", "ended"]
    answers: int
    steps: bool
    created: int
    prompt_tokens: int
    tokens: int
    nfe: int
    forked_from: ForkOrigin | None


class RequestList(Exact):
    """The requests of an API key: those under way, and those whose steps are kept."""

    object: Literal["list"]
    data: list[RequestRow]


class RunOfRecording(Exact):
    """An answer: what is known of it before its first forward, its frames, its text so far."""

    index: int
    head: dict[str, Any]
    frames: list[dict[str, Any]]
    text: str
    ended: bool


class Recording(Exact):
    """The steps of a request, an answer each."""

    dlstep_recording: Literal[1]
    runs: list[RunOfRecording]


class OptionCard(Exact):
    """An option: its kind, its range, the value in force, and whether one request may change it."""

    name: str
    kind: Literal["number", "integer", "boolean", "choice", "text", "integers"]
    optional: bool
    default: bool | int | float | str | list[int] | None
    least: float | None
    most: float | None
    open_least: bool
    open_most: bool
    choices: list[str]
    doc: str
    per_request: bool


class StrategyCard(Exact):
    """The strategy of the engine, and its options."""

    name: str
    doc: str
    options: list[OptionCard]


class RuleCard(StrategyCard):
    """A rule, its options, and why no request may choose it, if so."""

    per_request: bool
    why: str


class Example(BaseModel):
    """A prompt, or a conversation, to try."""

    model_config = ConfigDict(extra="allow")

    name: str


class Choices(Exact):
    """The choices that one request has on this engine."""

    model: str
    chat: bool
    max_model_len: int
    mask: int | None
    eos: list[int]
    strategy: StrategyCard
    rule: str | None
    rules: list[RuleCard]
    strategies: list[StrategyCard]
    examples: list[Example]


class Health(Exact):
    """The process answers."""

    status: Literal["ok"]


class ReplicaState(Exact):
    """One of the engines: its status, its number of deaths, and the reason of the last one.

    `resting`: it finishes its requests and is then restarted, as was requested. `silent`: its heartbeats are overdue.
    """

    replica: int
    status: Literal["loading", "ready", "silent", "restarting", "resting", "failed"]
    deaths: int
    last_death: str | None


class Readiness(Exact):
    """Whether requests can be answered, and why not."""

    status: Literal["loading", "ready", "silent", "restarting", "draining", "failed"]
    engine_deaths: int
    reason: str | None
    replicas: list[ReplicaState]


class Version(Exact):
    """The version of dlstep."""

    version: str


REFUSALS = {
    400: "A field is wrong; `param` names it.",
    401: "No API key, or a wrong one.",
    403: "The server does not accept this `Host` (`--allowed_hosts`).",
    404: "No such model, or no such request.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    422: "Never: what is wrong with a body is told by 400.",
    429: "Too many requests wait; `Retry-After` says when to try again.",
    500: "The model failed on this request.",
    503: "The model is loading, the engine starts again, or the server is shutting down.",
}
BODY = (403, 408, 413)  # errors of the guards, which any request may get
ASKED = (*BODY, 400, 401, 404, 422, 503)
DECODED = (*ASKED, 429, 500)


# An event of a stream is a chunk of an answer or an error; the last one is a word.
CHUNK = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
        "object": {"enum": ["text_completion", "chat.completion.chunk"]},
        "choices": {"type": "array", "items": {"type": "object", "required": ["index", "finish_reason"]}},
        "dlstep": {"type": "object", "required": ["index", "step", "nfe"]},  # more fields with drafts and steps
    },
}
FAILED = {"type": "object", "required": ["error"]}
JSON_TEXT = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": [CHUNK, FAILED]}}
EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"anyOf": [{"const": "[DONE]"}, JSON_TEXT]}}}


def answered(model: type[BaseModel], *refusals: int) -> Described:
    """The responses of a route: its answer, and its errors."""
    errors: Described = {status: {"description": REFUSALS[status], "model": ErrorBody} for status in refusals}
    return {200: {"description": model.__doc__, "model": model}} | errors


def streamed(*models: type[BaseModel]) -> Described:
    """The responses of a route that answers whole, by one of these models, or as a stream of events."""
    found = answered(models[0], *DECODED)
    found[200] |= {
        "model": Union[models],  # noqa: UP007 - of as many as there are
        "description": "The answers; with `stream`, events.",
        "content": {"text/event-stream": {"itemSchema": EVENT}},
    }
    return found


COMPLETION = streamed(Completion)
CHAT = streamed(ChatCompletion)
FORKED = streamed(Completion, ChatCompletion)
STEPS = answered(Recording, *BODY, 400, 401, 404, 422, 503)
REQUESTS = answered(RequestList, *BODY, 401)
OPTIONS = answered(Choices, *BODY, 401, 503)
CANCELLED = answered(Cancelled, *BODY, 401, 404, 422)
MODELS = answered(ModelList, *BODY, 401, 503)
MODEL = answered(ModelCard, *BODY, 401, 404, 422, 503)
TOKENIZED = answered(Tokenized, *ASKED)
DETOKENIZED = answered(Detokenized, *ASKED)
HEALTH = answered(Health, *BODY)
READY = answered(Readiness, *BODY) | {503: {"description": REFUSALS[503], "model": Readiness}}
VERSION = answered(Version, *BODY)
METRICS: Described = {status: {"description": REFUSALS[status]} for status in BODY}
