"""Request bodies, strictly typed, and their validation. Names are vLLM's; unsupported fields accept only neutral values.

Validation stops at the first error in a list, object or dictionary: a body of a megabyte may contain
a million errors, which pydantic would take 14 seconds to report.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, cast, get_type_hints

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError, from_json

from ...core import Code, Refused, SamplingParams
from ...core.checks import Json, limits_of, short
from ...engine.config import field_help
from ...text.read_templates import MOST_LABELS
from .errors import invalid

LARGE = 1 << 14  # bytes of a body; for smaller ones, a thread costs more than it saves
LONGEST_REASON = 120  # characters of a parser's message


class Strict(BaseModel, strict=True, extra="forbid", allow_inf_nan=False):
    """A model without type conversion (no text becomes a number) and without unknown fields."""

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, value: Any) -> Any:
        """Drop all unknown fields but one, because the error names only one."""
        if not isinstance(value, dict) or len(cast("Json", value)) <= len(cls.model_fields):
            return value
        fields = cast("Json", value)
        unknown = islice((name for name in fields if name not in cls.model_fields), 1)
        return {name: fields[name] for name in (*cls.model_fields, *unknown) if name in fields}


class Lenient(BaseModel, strict=True, extra="ignore", allow_inf_nan=False):
    """A model of a part of an earlier turn: unknown fields, which clients add to what they received, are ignored."""


class Open(BaseModel, strict=True, extra="allow", allow_inf_nan=False):
    """A model whose unknown fields are kept."""


def wrong(message: str, code: Code = "invalid_value") -> PydanticCustomError:
    """Return an error for a validator to raise."""
    return PydanticCustomError(code, "{message}", {"message": message})


def _decoded(value: Any) -> Any:
    """Return the value of a JSON text, with the limits of a body; anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return from_json(value, allow_inf_nan=False)
    except ValueError as error:
        raise wrong(f"the text is not valid JSON: {str(error)[:LONGEST_REASON]}", "invalid_json") from error


JsonObject = Annotated[Json, BeforeValidator(_decoded, json_schema_input_type=Json | str)]
"""A JSON object, or its text. Every text of a client that contains JSON is decoded here."""


Text = Annotated[str, Field(max_length=1 << 20)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Stops = Annotated[list[Stop], Field(max_length=64, fail_fast=True)]
Id = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
FEW, SOME_TOOLS = Field(min_length=1, fail_fast=True), Field(max_length=128, fail_fast=True)
Ids = Annotated[list[Id], FEW]
Texts = Annotated[list[Text], FEW]
Prompts = Text | Ids | Texts | Annotated[list[Ids], FEW]
# `encode_template` checks these, with errors that name the part.
LABELS = Field(json_schema_extra={"minItems": 2, "maxItems": MOST_LABELS, "uniqueItems": True})
TEMPLATE = Field(json_schema_extra={"contains": {"type": "array"}})
LAST_SEED = (1 << 63) - 1  # as in vLLM
FORMS = ("text", "json_object", "json_schema")
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
            accepted = " or ".join(map(json.dumps, values))
            raise wrong(f"dlstep does not support this: leave it out or set it to {accepted}", "unsupported")
        return value

    return AfterValidator(check), Field(json_schema_extra={"enum": [*values, None]})


Zero = Annotated[float, *_neutral(0)] | None
One = Annotated[float, *_neutral(1)] | None
No = Annotated[bool, *_neutral(False)] | None
Yes = Annotated[bool, *_neutral(True)] | None
Nothing = Annotated[list[Any], *_neutral([])] | None
Auto = Annotated[str, *_neutral("auto")] | None
Medium = Annotated[str, *_neutral("medium")] | None
Disabled = Annotated[str, *_neutral("disabled")] | None
LOGPROBS = "message.output_text.logprobs"


class StreamOptions(Strict):
    """Options of streams. `continuous_usage_stats` adds the usage so far to every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool | None = None  # OpenAI's padding against eavesdroppers; no effect


def _of_a_stream(options: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
    if options not in (None, StreamOptions()) and not info.data.get("stream"):
        raise wrong('set "stream": true, or leave them out', "conflict")
    return options


OptionsOfStream = Annotated[StreamOptions | None, AfterValidator(_of_a_stream)]


Word = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]  # no path, which would import a module
Number = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,8})$")]  # a key of an object


class DlstepOptions(Open):
    """Fields specific to dlstep. Any other field is an option of the strategy or rule."""

    stream: Literal["settled", "drafts", "steps"] = "settled"
    max_nfe: int | None = sampled("max_nfe")
    max_repetition_run: int | None = sampled("max_repetition_run")
    end_reserve: int | None = sampled("end_reserve")
    step_map: bool | None = sampled("step_map")
    pinned: Annotated[dict[Number, Id | str], FailFast] = Field(default_factory=dict)
    canvas: Annotated[list[Id], Field(fail_fast=True)] = sampled("canvas", default_factory=list)
    processors: Annotated[dict[Word, Json | None], FailFast] = sampled("processors", default_factory=dict)


class StructuredOutputs(Strict):
    """A constraint on the answer, as in vLLM: exactly one of the fields."""

    regex: str | None = sampled("regex")
    choice: Texts | None = sampled("choice")
    grammar: str | None = sampled("grammar")
    json_: Annotated[JsonObject | None, Field(alias="json", description=HELP["json_schema"])] = None
    json_object: bool | None = None

    @model_validator(mode="after")
    def _one(self) -> "StructuredOutputs":
        given = [
            name for name in ("regex", "choice", "grammar", "json_", "json_object") if getattr(self, name) not in (None, False)
        ]
        if len(given) != 1:
            raise wrong("give exactly one of regex, choice, grammar, json and json_object", "conflict")
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
    seed: int | None = sampled("seed", le=LAST_SEED)
    stop: Stop | Stops | None = sampled("stop")
    stop_token_ids: Annotated[list[Id], Field(max_length=1024, fail_fast=True)] | None = sampled("stop_token_ids")
    ignore_eos: bool | None = sampled("ignore_eos")
    repetition_penalty: float | None = None  # this and the next two are processors
    min_tokens: int | None = None
    logit_bias: Annotated[dict[Number, float], FailFast] | None = None
    stream: bool | None = None
    stream_options: OptionsOfStream = None
    structured_outputs: StructuredOutputs | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=1)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
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
    length_penalty: One = None
    use_beam_search: No = None
    skip_special_tokens: Yes = None
    spaces_between_special_tokens: Yes = None
    include_stop_str_in_output: No = None
    bad_words: Nothing = None
    allowed_token_ids: None = None
    prompt_logprobs: None = None
    guided_json: None = None
    prompt_cache_retention: Annotated[str, *_neutral("in_memory", "in-memory")] | None = None

    @property
    def most(self) -> int | None:
        """The maximum number of tokens of an answer, if it is given."""
        return self.max_tokens


class NamedSchema(Strict):
    """A JSON schema. Answers always conform to it, also if `strict` is false."""

    name: str
    description: str | None = None
    json_schema: Json = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """The form of answers: any text, JSON objects (that conform to `schema` if given), or JSON of a `json_schema`."""

    type: Annotated[str, Field(json_schema_extra={"enum": [*FORMS]})]
    json_schema: NamedSchema | None = None
    object_schema: Annotated[Json | None, Field(alias="schema")] = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> "ResponseFormat":
        if self.type not in FORMS:
            raise wrong(f"type must be {', '.join(FORMS[:-1])} or {FORMS[-1]}, got {short(self.type)}")
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise wrong('give json_schema={"name": ..., "schema": ...} with the type json_schema, and with no other type')
        if self.object_schema is not None and self.type != "json_object":
            raise wrong("schema goes only with the type json_object: leave it out, or give json_schema")
        return self

    @property
    def constraint(self) -> Json | None:
        """The JSON schema of the answers; None for any text."""
        if self.json_schema is not None:
            return self.json_schema.json_schema
        return None if self.type == "text" else self.object_schema or {"type": "object"}


class Formatted(Sampling):
    """A body that may prescribe the form of its answers."""

    response_format: ResponseFormat | None = None

    @property
    def form(self) -> Json | None:
        """The JSON schema of `response_format`; None if the answer may be any text."""
        return None if self.response_format is None else self.response_format.constraint


class CompletionRequest(Formatted):
    """The body of `/v1/completions`. Prompts are texts or token ids."""

    prompt: Prompts
    echo: bool | None = None
    logprobs: int | None = sampled("top_logprobs")
    best_of: One = None
    suffix: Annotated[Text | None, Field(description="Text after the gap that the answer fills (dreamon).")] = None
    add_special_tokens: bool | None = None


Name = Annotated[str, Field(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
NOTHING: Json = {"type": "object", "properties": {}, "additionalProperties": False}
# Keywords that can allow properties which `properties` does not name.
OPEN = {"$ref", "allOf", "anyOf", "oneOf", "if", "dependencies", "dependentSchemas", "patternProperties"}


class Function(Strict):
    """A function that the model may call. Its parameters are a JSON schema; by default it has none."""

    name: Name
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None

    @property
    def arguments(self) -> Json:
        """The schema of the arguments: only the `properties` of the parameters, unless a keyword allows or requires others."""
        if self.parameters is None:
            return NOTHING
        named, required = self.parameters.get("properties"), self.parameters.get("required", [])
        known = isinstance(named, dict) and isinstance(required, list) and all(str(name) in named for name in required)
        if known and OPEN.isdisjoint(self.parameters):
            return {"additionalProperties": False, **self.parameters}
        return self.parameters or {"type": "object"}


class Tool(Strict):
    """A tool: a function."""

    type: Literal["function"]
    function: Function


class FunctionName(Strict):
    """The name of a function."""

    name: Name


class NamedTool(Strict):
    """The choice of one function."""

    type: Literal["function"]
    function: FunctionName


class AllowedNames(Strict):
    """Functions of which the answer may, or must, call some."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], FEW]


class AllowedTools(Strict):
    """A choice among some of the tools; the prompt describes all of them."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedNames


ToolChoice = Literal["none", "auto", "required"] | NamedTool | AllowedTools


class CalledFunction(Lenient):
    """A function that was called, with its arguments as JSON text; an empty text stands for no arguments."""

    name: Name
    arguments: Annotated[JsonObject, BeforeValidator(lambda text: "{}" if text == "" else text)]


class ToolCall(Lenient):
    """A call of an earlier turn."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class TextPart(Lenient):
    """A part of a message's content. `input_text` and `output_text` are types of `/v1/responses`."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: Annotated[Text, Field(validation_alias=AliasChoices("text", "refusal"))]


class Message(Open):
    """A message of a conversation. Its content is a text or a list of text parts; null is an empty text.

    The content may be missing in a message of the assistant. A message of the role `tool` has the
    result of the call `tool_call_id`. All fields, known or not, are passed to the chat template.
    """

    role: str
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], SOME_TOOLS] | None = None
    tool_call_id: str | None = None
    reasoning_content: Text | None = None

    @model_validator(mode="after")
    def _has_content(self) -> "Message":
        if "content" not in self.model_fields_set and self.role != "assistant":
            raise wrong("content is missing: only a message of the assistant may leave it out", "missing")
        return self

    @property
    def text(self) -> str:
        """The content as a single text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())


class Conversation(Strict):
    """A conversation, and what the chat template renders with it."""

    messages: Annotated[list[Message], FEW]
    tools: Annotated[list[Tool], SOME_TOOLS] | None = None
    chat_template_kwargs: Json | None = None
    enable_thinking: bool | None = None
    reasoning_effort: Annotated[str, Field(max_length=32)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: No = None


class ChatRequest(Formatted, Conversation):
    """The body of `/v1/chat/completions`."""

    max_completion_tokens: int | None = sampled("max_tokens")
    logprobs: bool | None = None
    top_logprobs: int | None = sampled("top_logprobs")
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    modalities: Annotated[list[str], *_neutral(["text"])] | None = None
    verbosity: Medium = None

    @property
    def most(self) -> int | None:
        """The maximum number of tokens of an answer, if it is given."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


def _kind(body: Any) -> str:
    """Return the tag of a body or of its model. Tags begin with a capital letter, so that errors leave them out."""
    chats = "messages" in body if isinstance(body, dict) else hasattr(body, "messages")
    return "Chat" if chats else "Text"


ByKind = Discriminator(_kind)


class ItemsRequest(Sampling):
    """A body whose reply is made of items: one answer, without token ids."""

    tools: Annotated[list[Json], SOME_TOOLS] | None = None
    n: Annotated[int, *_neutral(1)] | None = None
    return_token_ids: No = None


class ResponsesRequest(ItemsRequest):
    """The body of `/v1/responses`. Nothing is stored, whatever `store` is."""

    input: Annotated[list[Json], FEW] | Text
    instructions: Text | None = None
    max_output_tokens: int | None = sampled("max_tokens")
    text: dict[Literal["format", "verbosity"], Any] | None = None
    tool_choice: Json | str | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[Literal["effort", "summary"], Any] | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] | None = None
    top_logprobs: int | None = sampled("top_logprobs")
    chat_template_kwargs: Json | None = None
    background: No = None
    truncation: Disabled = None
    store: bool | None = None
    previous_response_id: None = None


class MessagesRequest(ItemsRequest):
    """The body of `/v1/messages`. Prompts are cached without `cache_control`."""

    messages: Annotated[list[Json], FEW]
    max_tokens: Annotated[int | None, Field(ge=1)] = Field()
    system: Text | list[Json] | None = None
    stop_sequences: Stops | None = None
    tool_choice: dict[Literal["type", "name", "disable_parallel_tool_use"], Any] | None = None
    thinking: Annotated[Json, *_neutral({"type": "disabled"})] | None = None
    cache_control: Json | None = None
    stop: None = None
    stream_options: None = None
    return_tokens_as_token_ids: No = None


class ReadRequest(Strict):
    """The body of `/v1/reads`: prompts, and a template of fixed texts and slots (lists of labels)."""

    model: str | None = None
    prompt: Prompts
    template: Annotated[list[Text | Annotated[list[Text], FEW, LABELS]], FEW, TEMPLATE]
    user: str | None = None

    n: ClassVar[int] = 1  # a read has one answer for each prompt, and is not streamed
    stream: ClassVar[bool] = False
    stream_options: ClassVar[StreamOptions | None] = None


class ForkOptions(Open):
    """Options of the strategy or rule that change from the fork on."""

    stream: Literal["steps"] = "steps"


class ForkRequest(Strict):
    """The body of `/v1/requests/{id}/fork`, which continues answer `index` after step `seq`."""

    index: Annotated[int, Field(ge=0)] = 0
    seq: Annotated[int, Field(ge=0)]
    temperature: float | None = sampled("temperature")
    seed: int | None = sampled("seed", le=LAST_SEED)
    stream: bool | None = None
    stream_options: OptionsOfStream = None
    dlstep: ForkOptions = Field(default_factory=ForkOptions)
    n: ClassVar[int] = 1


class TokenizeText(Strict):
    """The body of `/tokenize` for a prompt."""

    prompt: Text
    model: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChat(Conversation):
    """The body of `/tokenize` for a conversation."""

    model: str | None = None
    return_token_strs: bool | None = None


TokenizeRequest = Annotated[Annotated[TokenizeChat, Tag("Chat")] | Annotated[TokenizeText, Tag("Text")], ByKind]


class DetokenizeRequest(Strict):
    """The body of `/detokenize`."""

    tokens: Annotated[list[Id], Field(fail_fast=True)]
    model: str | None = None


def fields_of(content: bytes, adapter: TypeAdapter[Any]) -> Any:
    """Return the validated fields of a body. Raises Refused naming the first invalid field.

    pydantic parses and validates in one pass, so a megabyte of invalid items never becomes a million
    Python objects.
    """
    try:
        return adapter.validate_json(content.removeprefix(BOM_UTF8))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=len(content) <= LARGE)
    if not content:
        raise Refused("", "invalid_json", "the body is empty: send a JSON object")
    fields = getattr(adapter.core_schema.get("cls"), "model_fields", {})
    raise invalid(errors, fields)
