"""The shapes of responses: dictionaries, also used in the OpenAPI document."""

from typing import (
    Any,
    Literal,
    NotRequired,  # from `typing`: pydantic accepts it on Python 3.12 and later
)

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

exact = with_config(ConfigDict(extra="forbid"))  # no further fields


@exact
class ErrorDetail(TypedDict):
    """An error: a message, its type, the invalid field, and a machine-readable code."""

    message: str
    type: str
    param: str | None
    code: str | None


@exact
class ErrorBody(TypedDict):
    """An error in OpenAI's form."""

    error: ErrorDetail


@exact
class Cancelled(TypedDict):
    """A cancelled request, which ends with its settled tokens."""

    id: str
    cancelled: Literal[True]


@exact
class ModelCard(TypedDict):
    """The served model. `description` tells what an embedded model is for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["dlstep"]
    max_model_len: int
    description: str | None


@exact
class ModelList(TypedDict):
    """The list of models, which contains the one served model."""

    object: Literal["list"]
    data: list[ModelCard]


@exact
class Tokenized(TypedDict):
    """The token ids of a prompt, with their strings if requested."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


@exact
class Detokenized(TypedDict):
    """The text of token ids."""

    prompt: str


@exact
class ForkOrigin(TypedDict):
    """Where a fork starts: a request, the index of an answer, and a step."""

    request: str
    index: int
    seq: int


@exact
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


@exact
class RequestList(TypedDict):
    """The requests of an API key that are running or whose steps are kept."""

    object: Literal["list"]
    data: list[RequestRow]


@exact
class RunOfRecording(TypedDict):
    """An answer: its head (facts before the first forward pass), frames, and text so far."""

    index: int
    head: dict[str, Any]
    frames: list[dict[str, Any]]
    text: str
    ended: bool


@exact
class Recording(TypedDict):
    """The steps of a request, one run per answer."""

    dlstep_recording: Literal[1]
    runs: list[RunOfRecording]


@exact
class ReadSlot(TypedDict):
    """The labels of a slot and their probabilities, in the same order."""

    labels: list[str]
    probabilities: list[float]


@exact
class ReadOfPrompt(TypedDict):
    """The probabilities at each slot, after the prompt with number `index`."""

    index: int
    slots: list[ReadSlot]


@exact
class ReadUsage(TypedDict):
    """Token counts of a read. `cached_tokens` counts prompt tokens found in pages of earlier reads."""

    prompt_tokens: int
    cached_tokens: int


@exact
class ReadsReply(TypedDict):
    """The probabilities of labels at the slots of a template, for each prompt."""

    id: str
    object: Literal["reads"]
    created: int
    model: str
    data: list[ReadOfPrompt]
    usage: ReadUsage


OptionKind = Literal["number", "integer", "boolean", "choice", "text", "integers"]


@exact
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


@exact
class StrategyCard(TypedDict):
    """The strategy of the engine and its options."""

    name: str
    doc: str
    options: list[OptionCard]


@exact
class RuleCard(StrategyCard):
    """A rule and its options; `why`: the reason if requests may not choose it, else empty."""

    per_request: bool
    why: str


@exact
class Example(TypedDict):
    """An example prompt or conversation."""

    name: str
    prompt: NotRequired[str]
    messages: NotRequired[list[dict[str, str]]]


@exact
class StrategyChoices(TypedDict):
    """The strategy of the engine, the name of its rule, and the rules that it accepts."""

    strategy: StrategyCard
    rule: str | None
    rules: list[RuleCard]


@exact
class Choices(StrategyChoices):
    """The options that a single request can set on this engine."""

    model: str
    description: str | None
    chat: bool
    max_model_len: int
    mask: int | None
    eos: list[int]
    strategies: list[StrategyCard]
    examples: list[Example]


@exact
class Health(TypedDict):
    """The server process is responding."""

    status: Literal["ok"]


@exact
class ReplicaState(TypedDict):
    """One engine: its status, its number of deaths, and the reason for the last one.

    `resting`: it finishes its requests before a requested restart. `silent`: its heartbeats are overdue.
    """

    replica: int
    status: Literal["loading", "ready", "silent", "restarting", "resting", "failed"]
    deaths: int
    last_death: str | None


@exact
class Readiness(TypedDict):
    """Whether the server can answer requests, and if not, the reason."""

    status: Literal["loading", "ready", "silent", "restarting", "draining", "failed"]
    engine_deaths: int
    reason: str | None
    replicas: list[ReplicaState]


@exact
class Version(TypedDict):
    """The version of dlstep."""

    version: str
