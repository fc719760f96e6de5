"""The shapes of responses: dictionaries, also used in the OpenAPI document."""

from typing import (
    Literal,
    NotRequired,  # from `typing`: pydantic accepts it on Python 3.12 and later
    Union,
)

from typing_extensions import TypedDict

from ..core import Json


class ErrorDetail(TypedDict):
    """An error: a message, its type, the invalid field, and a machine-readable code."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """An error in OpenAI's form, and in Anthropic's, which has a type at the top."""

    type: Literal["error"]
    error: ErrorDetail


class Cancelled(TypedDict):
    """A cancelled request, which ends with its settled tokens."""

    id: str
    cancelled: Literal[True]


class ModelCard(TypedDict):
    """The served model. `description` states what an embedded model can do."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["dlstep"]
    max_model_len: int
    description: str | None


class ModelList(TypedDict):
    """The list of models, which contains the one served model."""

    object: Literal["list"]
    data: list[ModelCard]


class Tokenized(TypedDict):
    """The token ids of a prompt, with their strings if requested."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(TypedDict):
    """The text of token ids."""

    prompt: str


class ForkOrigin(TypedDict):
    """Where a fork starts: a request, the index of an answer, and a step."""

    request: str
    index: int
    seq: int


class RequestRow(TypedDict):
    """A request: its status and cost so far, and whether its steps are kept."""

    id: str
    status: Literal["running", "ended"]
    answers: int
    steps: bool
    created: int
    prompt_tokens: int
    tokens: int
    nfe: int
    forked_from: ForkOrigin | None


class RequestList(TypedDict):
    """The requests of an API key that are running or whose steps are kept."""

    object: Literal["list"]
    data: list[RequestRow]


class RunOfRecording(TypedDict):
    """An answer: its head (facts before the first forward pass), frames, and text so far."""

    index: int
    head: Json
    frames: list[Json]
    text: str
    ended: bool


class Recording(TypedDict):
    """The steps of a request, one run per answer."""

    dlstep_recording: Literal[1]
    runs: list[RunOfRecording]


class ReadSlot(TypedDict):
    """The labels of a slot and their probabilities, in the same order."""

    labels: list[str]
    probabilities: list[float]


class ReadOfPrompt(TypedDict):
    """The probabilities at each slot, after the prompt with number `index`."""

    index: int
    slots: list[ReadSlot]


class ReadUsage(TypedDict):
    """Token counts of a read. `cached_tokens` counts prompt tokens found in pages of earlier reads."""

    prompt_tokens: int
    cached_tokens: int


class ReadsReply(TypedDict):
    """The probabilities of labels at the slots of a template, for each prompt."""

    id: str
    object: Literal["reads"]
    created: int
    model: str
    data: list[ReadOfPrompt]
    usage: ReadUsage


OptionKind = Literal["number", "integer", "boolean", "choice", "text", "integers"]


class OptionCard(TypedDict):
    """An option: its kind, range and current value, and whether a single request may change it."""

    name: str
    kind: OptionKind
    optional: bool
    default: bool | int | float | str | list[int] | None
    least: float | None
    most: float | None
    open_least: bool
    open_most: bool
    choices: list[str]
    doc: str
    per_request: bool


class StrategyCard(TypedDict):
    """The strategy of the engine and its options."""

    name: str
    doc: str
    options: list[OptionCard]


class RuleCard(StrategyCard):
    """A rule and its options; `why`: the reason if requests may not choose it, else empty."""

    per_request: bool
    why: str


class Example(TypedDict):
    """An example prompt or conversation."""

    name: str
    prompt: NotRequired[str]
    messages: NotRequired[list[dict[str, str]]]


class Choices(TypedDict):
    """The options that a single request can set on this engine: those of its strategy and of the rules that it accepts."""

    model: str
    description: str | None
    chat: bool
    max_model_len: int
    mask: int | None
    eos: list[int]
    strategy: StrategyCard
    rule: str | None
    rules: list[RuleCard]
    examples: list[Example]


class Health(TypedDict):
    """The server process is responding."""

    status: Literal["ok"]


ReplicaPhase = Literal["loading", "ready", "silent", "unready", "restarting", "failed"]
Phase = ReplicaPhase | Literal["draining"]


class ReplicaState(TypedDict):
    """One engine: its status, its number of deaths, and the reason for the last one.

    `silent`: heartbeats are overdue; `unready`: it sleeps, or an update of its weights failed.
    """

    replica: int
    status: ReplicaPhase
    deaths: int
    last_death: str | None


class Readiness(TypedDict):
    """Whether the server can answer requests, and if not, the reason."""

    status: Phase
    engine_deaths: int
    reason: str | None
    replicas: list[ReplicaState]


class AdminReply(TypedDict):
    """The change was made. `results` has, for each engine, the number of updates, or bytes in use before and after."""

    success: Literal[True]
    message: str
    results: list[int | list[int]]


class Version(TypedDict):
    """The version of dlstep."""

    version: str


Described = dict[int | str, Json]

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
    503: "The model is loading or sleeps, its update failed, the engine is restarting, or the server is shutting down.",
}
# Any route may answer with these. FastAPI would describe 422 itself.
ERRORS: Described = {status: {"description": text, "model": ErrorBody} for status, text in REFUSALS.items()}
METRICS: Described = {status: {"description": text} for status, text in REFUSALS.items()}


def answered(model: type) -> Described:
    """Return the responses of a route: its answer and the errors."""
    return {200: {"description": model.__doc__, "model": model}} | ERRORS


def streamed(*models: type) -> Described:
    """Return the responses of a route that returns one of these models or a stream."""
    answer = {
        "model": Union[models],  # noqa: UP007 - a union of a variable number of types
        "description": "The answers; with `stream`, server-sent events: chunks of answers, or an error.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return {200: answer} | ERRORS


READY = answered(Readiness) | {503: {"description": REFUSALS[503], "model": Readiness}}
