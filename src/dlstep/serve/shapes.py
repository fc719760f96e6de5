"""The shapes of responses: dictionaries that the routes return and the OpenAPI document shows."""

from typing import (
    Any,
    Literal,
    NotRequired,  # pydantic takes that of `typing` from Python 3.12 on
)

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

exact = with_config(ConfigDict(extra="forbid"))  # these fields and no other


@exact
class ErrorDetail(TypedDict):
    """An error: a sentence, its kind, the field that is wrong, and a word for programs."""

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
    """A request that ends with what is settled of it."""

    id: str
    cancelled: Literal[True]


@exact
class ModelCard(TypedDict):
    """The model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["dlstep"]
    max_model_len: int


@exact
class ModelList(TypedDict):
    """The list of the one model there is."""

    object: Literal["list"]
    data: list[ModelCard]


@exact
class Tokenized(TypedDict):
    """Token ids of a prompt, with their names where asked for."""

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
    """Where a fork begins."""

    request: str
    index: int
    seq: int


@exact
class RequestRow(TypedDict):
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


@exact
class RequestList(TypedDict):
    """The requests of an API key: those under way, and those whose steps are kept."""

    object: Literal["list"]
    data: list[RequestRow]


@exact
class RunOfRecording(TypedDict):
    """An answer: what is known of it before its first forward, its frames, its text so far."""

    index: int
    head: dict[str, Any]
    frames: list[dict[str, Any]]
    text: str
    ended: bool


@exact
class Recording(TypedDict):
    """The steps of a request, an answer each."""

    dlstep_recording: Literal[1]
    runs: list[RunOfRecording]


OptionKind = Literal["number", "integer", "boolean", "choice", "text", "integers"]


@exact
class OptionCard(TypedDict):
    """An option: its kind, its range, the value in force, and whether one request may change it."""

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
    """The strategy of the engine, and its options."""

    name: str
    doc: str
    options: list[OptionCard]


@exact
class RuleCard(StrategyCard):
    """A rule, its options, and why no request may choose it, if so."""

    per_request: bool
    why: str


@exact
class Example(TypedDict):
    """A prompt, or a conversation, to try."""

    name: str
    prompt: NotRequired[str]
    messages: NotRequired[list[dict[str, str]]]


@exact
class StrategyChoices(TypedDict):
    """The strategy of the engine, the name of its rule, and the rules that it takes."""

    strategy: StrategyCard
    rule: str | None
    rules: list[RuleCard]


@exact
class Choices(StrategyChoices):
    """The choices that one request has on this engine."""

    model: str
    chat: bool
    max_model_len: int
    mask: int | None
    eos: list[int]
    strategies: list[StrategyCard]
    examples: list[Example]


@exact
class Health(TypedDict):
    """The process answers."""

    status: Literal["ok"]


@exact
class ReplicaState(TypedDict):
    """One of the engines: its status, its number of deaths, and the reason of the last one.

    `resting`: it finishes its requests and is then restarted, as was requested. `silent`: its heartbeats are overdue.
    """

    replica: int
    status: Literal["loading", "ready", "silent", "restarting", "resting", "failed"]
    deaths: int
    last_death: str | None


@exact
class Readiness(TypedDict):
    """Whether requests can be answered, and why not."""

    status: Literal["loading", "ready", "silent", "restarting", "draining", "failed"]
    engine_deaths: int
    reason: str | None
    replicas: list[ReplicaState]


@exact
class Version(TypedDict):
    """The version of dlstep."""

    version: str
