"""Request bodies, strictly typed. Names are vLLM's; unsupported fields accept only neutral values.

Validation stops at the first error in a list, object or dictionary: a body of a megabyte may contain
a million errors, which pydantic would take 14 seconds to report.
"""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Literal, cast, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from ...core import SamplingParams
from ...core.checks import limits_of
from ...core.request import LAST_ID
from ...engine.option_help import field_help
from ...text.read_templates import MOST_LABELS
from .strict import Strict
from .tool_calls import Tool, ToolCall, ToolChoice

Text = Annotated[str, Field(max_length=1 << 20)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Id = Annotated[int, Field(ge=0, le=LAST_ID)]
FEW = Field(min_length=1, fail_fast=True)
Ids = Annotated[list[Id], FEW]
# `encode_template` checks these, with errors that name the part.
LABELS = Field(json_schema_extra={"minItems": 2, "maxItems": MOST_LABELS, "uniqueItems": True})
TEMPLATE = Field(json_schema_extra={"contains": {"type": "array"}})
PART = 64  # entries of a dictionary that are validated together
HINTS, HELP = get_type_hints(SamplingParams, include_extras=True), field_help(SamplingParams)
BOUNDS = {"at least": "ge", "more than": "gt", "at most": "le", "less than": "lt"}


def sampled(name: str, **more: Any) -> Any:
    """Return a field with the range and help of a `SamplingParams` field. Its default is None."""
    bounds = {BOUNDS[bound]: limit for bound, limit in limits_of(HINTS[name])}
    return Field(**({"default": None} if "default_factory" not in more else {}), description=HELP[name], **(bounds | more))


def _by_parts(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Validate a dictionary `PART` entries at a time, so that pydantic reports at most `PART` errors."""
    if not isinstance(value, dict):
        return check(value)
    entries: Iterator[tuple[Any, Any]] = iter(cast("dict[Any, Any]", value).items())
    checked = check({})
    while part := dict(islice(entries, PART)):
        checked |= check(part)
    return checked


FailFast = WrapValidator(_by_parts)  # `Field(fail_fast=True)` for dictionaries


def _neutral(*values: Any) -> tuple[Any, ...]:
    """Return the annotations of a field that accepts only values without effect."""

    def check(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"dlstep does not support this: leave it out or set it to {' or '.join(map(json.dumps, values))}")
        return value

    return AfterValidator(check), Field(json_schema_extra={"enum": [*values, None]})


Zero = Annotated[float, *_neutral(0)] | None
One = Annotated[float, *_neutral(1)] | None
No = Annotated[bool, *_neutral(False)] | None
Yes = Annotated[bool, *_neutral(True)] | None
Nothing = Annotated[list[Any], Field(max_length=0)] | None


class StreamOptions(Strict):
    """Options of streams. `continuous_usage_stats` adds the usage so far to every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class DlstepOptions(BaseModel):
    """Fields specific to dlstep. Any other field is an option of the strategy or rule."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    stream: Literal["settled", "drafts", "steps"] = "settled"
    max_nfe: int | None = sampled("max_nfe")
    max_repetition_run: int | None = sampled("max_repetition_run")
    pinned: Annotated[dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Id | str], FailFast] = Field(default_factory=dict)
    canvas: Annotated[list[Id], Field(fail_fast=True)] = sampled("canvas", default_factory=list)


class StructuredOutputs(Strict):
    """A constraint on the answer, as in vLLM: exactly one of the fields."""

    regex: str | None = sampled("regex")
    choice: Annotated[list[Text], FEW] | None = sampled("choice")
    json_: Annotated[dict[str, Any] | str | None, Field(alias="json", description=HELP["json_schema"])] = None
    json_object: bool | None = None

    @model_validator(mode="after")
    def _one(self) -> "StructuredOutputs":
        given = [name for name in ("regex", "choice", "json_", "json_object") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("give exactly one of regex, choice, json and json_object")
        return self


class Sampling(Strict):
    """The fields of completions and chat completions, with the defaults of `SamplingParams`."""

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    max_tokens: int | None = sampled("max_tokens")
    temperature: float | None = sampled("temperature")
    top_p: float | None = sampled("top_p")
    top_k: int | None = sampled("top_k", ge=-1)  # -1: no limit, as in vLLM
    min_p: float | None = sampled("min_p")
    seed: int | None = sampled("seed")
    stop: Stop | Annotated[list[Stop], Field(max_length=64, fail_fast=True)] | None = sampled("stop")
    stop_token_ids: Annotated[list[Id], Field(max_length=1024, fail_fast=True)] | None = sampled("stop_token_ids")
    ignore_eos: bool | None = sampled("ignore_eos")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    structured_outputs: StructuredOutputs | None = None
    dlstep: DlstepOptions = Field(default_factory=DlstepOptions)

    # Fields that describe the client and have no effect.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: Annotated[dict[str, str], FailFast] | None = None

    # Fields of other servers, accepted only with neutral values.
    service_tier: Literal["auto", "default"] | None = None
    store: No = None
    frequency_penalty: Zero = None
    presence_penalty: Zero = None
    repetition_penalty: One = None
    length_penalty: One = None
    min_tokens: Annotated[int, *_neutral(0)] | None = None
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = None
    use_beam_search: No = None
    skip_special_tokens: Yes = None
    spaces_between_special_tokens: Yes = None
    include_stop_str_in_output: No = None
    bad_words: Nothing = None
    allowed_token_ids: None = None
    prompt_logprobs: None = None
    truncate_prompt_tokens: None = None
    guided_json: None = None


class CompletionRequest(Sampling):
    """The body of `/v1/completions`. Prompts are texts or token ids."""

    prompt: Text | Ids | Annotated[list[Text], FEW] | Annotated[list[Ids], FEW]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=1)] | None = None
    best_of: One = None
    suffix: Annotated[str, Field(max_length=0)] | None = None
    add_special_tokens: bool | None = None


class TextPart(Strict):
    """A part of a message's content."""

    type: Literal["text"]
    text: Text


class Message(Strict):
    """A message of a conversation. Its content is a text or a list of text parts.

    It may be missing in a message of the assistant with `tool_calls`. A message of the role `tool`
    has the result of the call `tool_call_id`.
    """

    role: str
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128, fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: Text | None = None
    refusal: None = None

    @model_validator(mode="after")
    def _has_content(self) -> "Message":
        if self.content is None and not self.tool_calls:
            raise ValueError("content is missing: only a message with tool_calls may leave it out")
        return self

    @property
    def text(self) -> str:
        """The content as a single text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())


class TextFormat(Strict):
    """Answers of any form."""

    type: Literal["text"]


class JsonObjectFormat(Strict):
    """Answers that are JSON objects."""

    type: Literal["json_object"]


class NamedSchema(Strict):
    """A JSON schema. Answers always conform to it, also if `strict` is false."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    """Answers that conform to a JSON schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class ChatRequest(Sampling):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], FEW]
    max_completion_tokens: int | None = sampled("max_tokens")
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=1)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: Annotated[str, Field(max_length=32)] | None = None
    add_generation_prompt: Yes = None
    add_special_tokens: No = None
    continue_final_message: No = None


class ReadRequest(Strict):
    """The body of `/v1/reads`: prompts, and a template of fixed texts and slots (lists of labels)."""

    model: str | None = None
    prompt: Text | Ids | Annotated[list[Text], FEW] | Annotated[list[Ids], FEW]
    template: Annotated[list[Text | Annotated[list[Text], FEW, LABELS]], FEW, TEMPLATE]
    user: str | None = None

    @property
    def n(self) -> int:
        """The number of reads per prompt: always one."""
        return 1

    @property
    def stream(self) -> bool:
        """Whether to stream: never."""
        return False

    @property
    def stream_options(self) -> None:
        """None: a read is not streamed."""
        return None


class ForkOptions(BaseModel):
    """Options of the strategy or rule that change from the fork on."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    stream: Literal["steps"] = "steps"


class ForkRequest(Strict):
    """The body of `/v1/requests/{id}/fork`, which continues answer `index` after step `seq`."""

    index: Annotated[int, Field(ge=0)] = 0
    seq: Annotated[int, Field(ge=0)]
    temperature: float | None = sampled("temperature")
    seed: int | None = sampled("seed")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    dlstep: ForkOptions = Field(default_factory=ForkOptions)

    @property
    def n(self) -> int:
        """The number of answers: always one."""
        return 1


class TokenizeText(Strict):
    """The body of `/tokenize` for a prompt."""

    prompt: Text
    model: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChat(Strict):
    """The body of `/tokenize` for a conversation."""

    messages: Annotated[list[Message], FEW]
    chat_template_kwargs: dict[str, Any] | None = None
    model: str | None = None
    add_generation_prompt: Yes = None
    add_special_tokens: No = None
    return_token_strs: bool | None = None


class DetokenizeRequest(Strict):
    """The body of `/detokenize`."""

    tokens: Annotated[list[Id], Field(fail_fast=True)]
    model: str | None = None
