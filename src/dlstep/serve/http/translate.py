"""Translation of request bodies to submissions. It finds every error before the response begins."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from typing import Any, NamedTuple

from ... import rules
from ...core import Ids, Processor, Refused, Request, Rule, SamplingParams, SequenceState, Spec, Strategy, add, options_of
from ...core.automaton import Automaton
from ...core.checks import Json, did_you_mean, short
from ...core.lifecycle import checked, probe, refusal_of_max_tokens
from ...core.options import PluginGroup, unknown_option
from ...core.request import PLUGINS, processors_of
from ...engine.decode import constrained
from ...engine.reads import Reading, read_request
from ...processors.logit_bias import LogitBias
from ...text.chat import chat_prompt, template_of
from ...text.constraints import Marks, compiled
from ...text.detokenize import decode, special_ids
from ...text.limited_worker import NotDoneError
from ...text.prompts import encode, encode_pins, encode_suffix, numbered, with_stop_ids
from ...text.read_templates import ReadTemplate, encode_template
from ...views.frames import Frame, FrameRecorder
from ..messages import Facts, Submit
from ..router.pending_requests import Head
from ..shapes import Detokenized, Tokenized
from .errors import NAMES, renaming
from .schema import (
    ChatRequest,
    CompletionRequest,
    Conversation,
    DetokenizeRequest,
    Formatted,
    Message,
    ReadRequest,
    Sampling,
    TokenizeRequest,
    TokenizeText,
)
from .tool_calls import begins_reasoning, call_schema, callable_freely, called_function, format_in, format_of

LONGEST_TOKEN = 64  # upper bound of the average number of characters per token in a prompt
SWITCHES = ("enable_thinking", "thinking", "reasoning_effort")  # clients send these to all models
MOST_BIASES = 1024  # each costs time in every forward pass
PARAMS = tuple(field.name for field in fields(SamplingParams))
# Fields of other servers that name a processor: the name, its option, and the neutral value, which many clients send.
PROCESSED = (("repetition_penalty", "penalty", 1), ("min_tokens", "count", 0), ("logit_bias", "bias", {}))


class TranslatedBody(NamedTuple):
    """A translated body: one submission per answer, and the text that each answer starts with.

    If steps were requested, `openings` holds each answer's initial sequence and first frame.
    """

    submits: list[Submit]
    echoes: list[str]
    openings: list[tuple[SequenceState, Frame]]


def named(body: Any) -> AbstractContextManager[None]:
    """Rename the fields of refusals that the `with` block raises to those of completions, chats, forks or reads."""
    chats, form = isinstance(body, Conversation), getattr(body, "response_format", None)
    constraint = "response_format" if form is not None else "tools"
    constraint = "structured_outputs" if getattr(body, "structured_outputs", None) else constraint
    names = {
        **NAMES,
        "regex|choice|grammar|json_schema|automaton": constraint,
        **({"prompt|chat_template": "messages"} if chats else {}),
    }
    return renaming(names, getattr(getattr(body, "dlstep", None), "model_extra", None) or {})


def check_model(facts: Facts, name: str | None) -> None:
    """Raise Refused unless `name` is the served model or empty."""
    if name not in (None, "", facts.model):
        raise Refused("model", "model_not_found", f"the model {name!r} does not exist: this server has {facts.model!r}")


def _completion_prompts(facts: Facts, body: CompletionRequest) -> tuple[list[Ids], list[str]]:
    """Return the prompts of a completion, and the texts that their answers start with. Raises Refused."""
    if body.echo and body.logprobs is not None:
        raise Refused(
            "echo",
            "conflict",
            "echo and logprobs cannot be combined: prompt tokens are not predicted, so they have no probability",
        )
    prompts = prompts_of(body)
    check_count(facts, len(prompts), body.n or 1)
    encoded = [encoded_prompt(facts, prompt, body.add_special_tokens, infills=bool(body.suffix)) for prompt in prompts]
    pairs = zip(prompts, encoded, strict=True)
    return encoded, [_echoed(facts, prompt, tokens) if body.echo else "" for prompt, tokens in pairs]


def prompts_of(body: CompletionRequest | ReadRequest) -> list[Any]:
    """Return the prompts of a body: texts or lists of ids."""
    prompt: Any = body.prompt
    return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt


def _chat_prompts(facts: Facts, body: ChatRequest) -> tuple[list[Ids], list[str]]:
    """Return the prompt of a chat, and the empty text that its answers start with. Raises Refused."""
    if body.top_logprobs and not body.logprobs:
        raise Refused("top_logprobs", "conflict", "it needs logprobs to be true")
    if body.max_tokens not in (None, body.most):
        raise Refused("max_tokens", "conflict", "max_tokens and max_completion_tokens differ: give one of them")
    check_count(facts, 1, body.n or 1)
    if callable_freely(body):
        _check_free_calls(facts)
    return [conversation(facts, body)], [""]


def _variables(body: Conversation) -> Json:
    """Return the variables of the chat template. Raises Refused if a field and `chat_template_kwargs` differ."""
    variables = dict(body.chat_template_kwargs or {})
    for name in ("enable_thinking", "reasoning_effort"):
        value = getattr(body, name)
        if value is not None and variables.setdefault(name, value) != value:
            raise Refused(name, "conflict", "it differs from chat_template_kwargs: give one of them")
    return variables


def conversation(facts: Facts, body: Conversation) -> Ids:
    """Return the prompt of a conversation, whose answer is its next turn. Raises Refused."""
    check_length(facts, sum(len(message.text) for message in body.messages), "messages")
    turns = [_turn(message) for message in body.messages]
    variables = _variables(body)
    with named(body):
        return chat_prompt(
            facts.tokenizer,
            facts.chat_template,
            turns,
            tools=[tool.model_dump(exclude_unset=True) for tool in body.tools or ()],
            variables=variables,
            optional=SWITCHES,
            add_generation_prompt=body.add_generation_prompt is not False,
            continue_final_message=body.continue_final_message is True,
        )


def _check_free_calls(facts: Facts) -> None:
    """Raise Refused if the template defines no calls that could be found in an answer."""
    if format_of(template_of(facts.tokenizer, facts.chat_template)) is None:
        raise Refused(
            "tool_choice",
            "unsupported",
            '"auto" needs a chat template that defines calls as <tool_call>{"name": ..., "arguments": ...}'
            "</tool_call> or <|tool_call>call:NAME{...}<tool_call|>, and the template of this model does not: give "
            '"required", "none", or the name of a function',
        )


def _turn(message: Message) -> Json:
    """Return a message as chat templates expect it: its content as one text, arguments of calls as objects."""
    given = {name: value for name, value in message.model_dump().items() if value not in (None, [])}
    return given | {"content": message.text}


def params_of(facts: Facts, body: Sampling) -> SamplingParams:
    """Return the sampling parameters. Raises Refused."""
    own = body.dlstep
    options = strategy_options(facts.first.strategy, own.model_extra or {})
    most = facts.max_tokens if body.most is None else body.most
    known = vars(body) | vars(own) | {"max_tokens": most, "strategy_options": options}
    if (body.min_tokens or 0) > most:
        raise Refused("min_tokens", "conflict", f"{body.min_tokens} exceeds max_tokens={most}: lower it, or raise max_tokens")
    if body.top_k == -1:
        known["top_k"] = 0
    if isinstance(body.stop, str):
        known["stop"] = [body.stop]
    known.setdefault("top_logprobs", known.get("logprobs"))  # in completions, `logprobs` is the number
    known |= constraint_of(body) | dict.fromkeys(facts.first.strategy.OWN_PARAMS) | {"processors": _processors(facts, body)}
    params: Json = {name: known[name] for name in PARAMS if known.get(name) is not None}
    params |= {name: tuple(value) for name, value in params.items() if isinstance(value, list)}
    if suffix := params.pop("suffix", ""):
        check_length(facts, len(suffix), "suffix")
        params["suffix"] = encode_suffix(facts, suffix)
    params["pinned"] = encode_pins(facts, {int(offset): token for offset, token in own.pinned.items()})
    return with_stop_ids(SamplingParams(**params), facts.tokenizer)


def _processors(facts: Facts, body: Sampling) -> tuple[Processor, ...]:
    """Return the processors of a body: of the fields in PROCESSED, then of `dlstep`. Raises Refused that names the field."""
    values = [(name, option, getattr(body, name)) for name, option, neutral in PROCESSED if getattr(body, name) != neutral]
    asked = [(name, name, {option: value}) for name, option, value in values if value is not None]
    for name in body.dlstep.processors:
        check_name(PLUGINS, name, f"dlstep.processors.{name}")
    asked += [(f"dlstep.processors.{name}", name, options) for name, options in body.dlstep.processors.items()]
    processors: list[Processor] = []
    for field, name, options in asked:
        with renaming({"processors": field}):
            processors += processors_of({name: options})
        if isinstance(last := processors[-1], LogitBias):
            if len(last.bias) > MOST_BIASES:
                raise Refused(field, "too_long", f"it has {len(last.bias)} token ids; at most {MOST_BIASES} are allowed")
            _check_ids(facts, dict(last.bias), field)
    return tuple(processors)


def _check_ids(facts: Facts, ids: Iterable[int], field: str) -> None:
    """Raise Refused for an id that the model does not have."""
    size = facts.first.config.spec.vocab_size
    if wrong := next((index for index in ids if index >= size), None):
        raise Refused(field, "unknown_token_id", f"token id {wrong} does not exist: ids of this model are below {size}")


def constraint_of(body: Sampling) -> Json:
    """Return the constraint of a body as a field of `SamplingParams`; {} without one. Raises Refused."""
    asked, form = body.structured_outputs, body.form if isinstance(body, Formatted) else None
    if isinstance(body, ChatRequest):
        forced = called_function(body) is not None
        if (forced or callable_freely(body)) and (asked is not None or form is not None):
            message = 'calls exclude response_format and structured_outputs: leave these out, or give "none"'
            raise Refused("tool_choice", "conflict", message)
        if forced:
            return {"json_schema": call_schema(body)}
    if asked is None:
        return {} if form is None else {"json_schema": form}
    if form is not None:
        raise Refused("structured_outputs", "conflict", "it differs from response_format: give one of them")
    schema = {"type": "object"} if asked.json_object else asked.json_
    given = {"regex": asked.regex, "choice": asked.choice, "grammar": asked.grammar, "json_schema": schema}
    return {name: value for name, value in given.items() if value is not None}


def reasoning_before(facts: Facts, body: Sampling) -> tuple[Spec, Marks]:
    """Return a spec in which the reasoning marks have text, and the marks; None if a constrained answer does not reason.

    It reasons if the prompt ends with the first mark, or if a switch of the chat template is true.
    """
    spec = facts.first.config.spec
    if not isinstance(body, ChatRequest) or (form := format_in(facts)) is None or facts.tokenizer is None:
        return spec, None
    begun = begins_reasoning(facts, form, conversation(facts, body))
    template = template_of(facts.tokenizer, facts.chat_template)
    on = [name for name, value in _variables(body).items() if name in SWITCHES and value is True and name in (template or "")]
    if not begun and not on:
        return spec, None
    pieces = list(spec.pieces)
    for index in special_ids(facts.tokenizer, form.tokens[:2]):
        pieces[index] = str(facts.tokenizer.convert_ids_to_tokens(index)).encode()
    return replace(spec, pieces=tuple(pieces)), ("" if begun else form.think, form.thought)


def find_constraint(
    facts: Facts, body: Sampling, reasoning: tuple[Spec, Marks], find: Callable[..., Automaton | None] = compiled
) -> Automaton | None:
    """Return what `find` returns for the constraint of a body; None without one. Raises Refused if it is refused."""
    try:
        with named(body):
            source = SamplingParams(**constraint_of(body)).constraint_source
            return None if source is None else find(*source, reasoning[0], marks=reasoning[1])
    except NotDoneError as error:
        raise Refused("", "constraint_not_compiled", str(error)) from error


def check_name(group: PluginGroup[Any], given: object, field: str) -> None:
    """Raise Refused unless `given` is a known name. A path would import a module."""
    if not (isinstance(given, str) and group.is_known(given)):
        meant = did_you_mean(str(given), group.available(), ": ") or f", one of {', '.join(group.available())}"
        raise Refused(field, "unknown_name", f"must be the name of a {group.word}, got {short(given)}{meant}")


def strategy_options(strategy: Strategy, extra: Json) -> Json:
    """Return the strategy options of a request, without those that are null. Rules must be known names, not files."""
    options = {name: value for name, value in extra.items() if value is not None}
    for name in rules.HOLDERS:
        rule = options.get(name)
        if rule is not None:
            check_name(rules.PLUGINS, rule, f"dlstep.{name}")
    options = rules.with_values(options)
    known = options_of(strategy).keys() | {
        name for value in options.values() if isinstance(value, Rule) for name in options_of(value)
    }
    if unknown := next((name for name, value in extra.items() if value is None and name not in known), None):
        raise Refused(unknown, "unknown_field", unknown_option("dlstep", unknown, None, known))
    return options


def check_count(facts: Facts, prompts: int, copies: int) -> None:
    """Raise Refused if a request asks for too many answers, before encoding any prompt."""
    if prompts * copies > facts.most_answers:
        raise Refused(
            "n" if copies > 1 else "prompt",
            "out_of_range",
            f"the request asks for {prompts * copies} answers; at most {facts.most_answers} are allowed",
        )


def check_length(facts: Facts, characters: int, param: str) -> None:
    """Raise Refused for a text that is certainly too long, before encoding it."""
    max_model_len = facts.first.config.max_model_len
    if characters > LONGEST_TOKEN * max_model_len:
        raise Refused(
            param,
            "context_length_exceeded",
            f"it has {characters} characters; max_model_len={max_model_len} tokens leave no room for an answer",
        )


def encoded_prompt(facts: Facts, prompt: str | list[int], special: bool | None = None, *, infills: bool = False) -> Ids:
    """Return the tokens of a prompt, including the model's `prompt_end`. Raises Refused."""
    if isinstance(prompt, str):
        check_length(facts, len(prompt), "prompt")
    return encode(facts, prompt, special=special, infills=infills)


def _echoed(facts: Facts, prompt: str | list[int], tokens: Ids) -> str:
    """Return the text of a prompt: the given text with `prompt_end`, or the decoded tokens."""
    if isinstance(prompt, str):
        return prompt if prompt.endswith(facts.prompt_end) or not prompt else prompt + facts.prompt_end
    return decode(facts.tokenizer, tokens)


def translated(facts: Facts, body: CompletionRequest | ChatRequest, constraint: Automaton | None = None) -> TranslatedBody:
    """Translate the body of `/v1/completions` or `/v1/chat/completions`; `constraint` is its compiled constraint.

    There is one submission per answer, checked as the engine would. Their seeds differ.
    """
    with named(body):
        prompts, echoes = _chat_prompts(facts, body) if isinstance(body, ChatRequest) else _completion_prompts(facts, body)
        params, spec = params_of(facts, body), facts.first.config.spec
        if body.truncate_prompt_tokens is not None:
            prompts = [prompt[-body.truncate_prompt_tokens :] for prompt in prompts]
        if not all(prompts):
            raise Refused("prompt", "missing", "a prompt is empty: give at least one token")
        forced = isinstance(body, ChatRequest) and called_function(body) is not None
        each, copies = params.each, len(params.each)
        salt = (body.cache_salt or "").encode()
        requests = [
            _checked(facts, constrained(replace(request, automaton=constraint, salt=salt), spec), body, forced=forced)
            for request in numbered([prompt for prompt in prompts for _ in each], each * len(prompts))
        ]
        stream = body.dlstep.stream
        drafts, steps = bool(body.stream) and stream == "drafts", stream == "steps"
        submits = [
            Submit(
                request,
                drafts,
                probabilities=_has_logprobs(body) or bool(body.return_token_ids),  # both are read from the same records
                steps=steps,
                keeps=steps and len(requests) <= facts.most_kept,
                may_be_cut=forced,
            )
            for request in requests
        ]
        sequences = [add(facts.first, request).find(request.id) for request in requests] if steps else []
        openings = [(sequence, FrameRecorder().open(sequence)[0]) for sequence in sequences if sequence is not None]
        return TranslatedBody(submits, [echo for echo in echoes for _ in range(copies)], openings)


def _checked(facts: Facts, request: Request, body: Sampling, *, forced: bool) -> Request:
    """Return a request that the engine need not check again. Raises Refused if the engine would reject it."""
    added, reason = checked(facts.first.config, facts.first.strategy, request)
    if not reason and body.most is not None:
        reason = refusal_of_max_tokens(facts.first.config, request)
    if not reason:
        return added
    if forced and reason.code == "unsatisfiable":
        return request
    raise Refused(*reason)


def tokenized(facts: Facts, body: TokenizeRequest) -> Tokenized:
    """Return the token ids of a prompt or a conversation. Raises Refused."""
    if isinstance(body, TokenizeText):
        ids = encoded_prompt(facts, body.prompt, body.add_special_tokens)
    else:
        ids = conversation(facts, body)
    tokenizer, strings = facts.tokenizer, None
    if body.return_token_strs:
        strings = [] if tokenizer is None else [str(tokenizer.convert_ids_to_tokens(index)) for index in ids]
    return Tokenized(count=len(ids), max_model_len=facts.first.config.max_model_len, tokens=list(ids), token_strs=strings)


def detokenized(facts: Facts, body: DetokenizeRequest) -> Detokenized:
    """Return the text of token ids, including special tokens. Raises Refused."""
    _check_ids(facts, body.tokens, "tokens")
    if (tokenizer := facts.tokenizer) is None:
        raise Refused("tokens", "unsupported", "this model has no tokenizer")
    return Detokenized(prompt=str(tokenizer.decode(body.tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)))


def _has_logprobs(body: CompletionRequest | ChatRequest) -> bool:
    """Return whether the response has log probabilities: a completion may ask for 0 alternatives, a chat for none at all."""
    return body.logprobs is not None and body.logprobs is not False


def head_for(body: CompletionRequest | ChatRequest, model: str, prefix: str) -> Head:
    """Return the head of the response to a body, with a prefix of its id; empty: that of completions and chats."""
    common = model, _has_logprobs(body), bool(body.return_tokens_as_token_ids), bool(body.return_token_ids)
    if isinstance(body, CompletionRequest):
        return Head("completion", *common)
    calls = {"call": called_function(body), "functions": callable_freely(body)}
    return Head("chat", *common, **calls, parallel=body.parallel_tool_calls is not False, prefix=prefix)


def read(facts: Facts, body: ReadRequest) -> TranslatedBody:
    """Translate a body. Raises Refused that names the invalid field."""
    prompts, config = prompts_of(body), facts.first.config
    check_count(facts, len(prompts), 1)
    encoded = [encoded_prompt(facts, prompt) for prompt in prompts]
    characters = sum(len(part) if isinstance(part, str) else max(map(len, part)) for part in body.template)
    check_length(facts, characters, "template")
    reading = Reading(facts.first.strategy)
    with named(body):
        if reason := reading.refusal(config.spec, probe(config.spec)):
            raise Refused(*reason)
        template = encode_template(facts.tokenizer, body.template)
    return TranslatedBody([_submit(facts, reading, prompt, template) for prompt in encoded], [""] * len(encoded), [])


def _submit(facts: Facts, reading: Reading, prompt: Ids, template: ReadTemplate) -> Submit:
    """Return the submission of a read. Raises Refused if the engine would reject it."""
    config = facts.first.config
    request = read_request(0, prompt, template, config.max_model_len)
    added, reason = checked(replace(config, processors=()), reading, request)
    if reason:
        raise Refused("prompt", reason.code, reason.message)
    return Submit(added, template=template, probabilities=True)
