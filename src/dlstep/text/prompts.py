"""Conversion of callers' arguments: prompts as text or token ids, pinned tokens, rules by name."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol
from warnings import warn

from .. import rules
from ..core import Ids, Refused, Request, SamplingParams, State
from ..core.checks import listed, pairs_of, plain, short, text_of
from ..core.lifecycle import refusal_of_max_tokens
from .detokenize import Tokenizer, special_ids
from .output import Prompt, Prompts


class TextEncoder(Protocol):
    """A converter of text to ids. It appends `prompt_end` to text prompts that lack this ending."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None if there is none."""
        ...

    @property
    def prompt_end(self) -> str:
        """The ending that text prompts get if they lack it."""
        ...

    @property
    def first(self) -> State:
        """The state before any request."""
        ...

    @property
    def max_tokens(self) -> int:
        """The maximum length of answers in calls without parameters."""
        ...


def encode_text(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = True, field: str = "prompt") -> Ids:
    """Return the ids of a text. Raises Refused, with the name of the field, if the tokenizer fails.

    A text that begins with the beginning-of-sequence token gets no second one.
    """
    try:
        ids = tuple(tokenizer.encode(text, add_special_tokens=add_special_tokens))
    except BaseException as error:  # tokenizers raises plain Exception, or a Rust panic
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise Refused(
                field, "invalid_value", f"the model's tokenizer cannot encode this text: {str(error)[:200]}"
            ) from error
        raise
    begin = tokenizer.special_tokens_map.get("bos_token") if add_special_tokens else None
    if begin and text.startswith(str(begin)):
        own = encode_text(tokenizer, text, add_special_tokens=False)
        if ids[1 : len(own) + 1] == own:
            return ids[1:]
    return ids


def encode(
    texts: TextEncoder,
    prompt: Prompt,
    *,
    special: bool | None = None,
    ends: bool = True,
    infills: bool = False,
    field: str = "prompt",
) -> Ids:
    """Return the token ids of a prompt, which is text or a list of ids. Raises Refused, with the name of the field, otherwise.

    The tokenizer adds its special tokens to text unless `special` is False. With `ends`, text gets `prompt_end` if it lacks
    it. With `infills` (there is a suffix), text gets the beginning-of-sequence token, as in DreamOn's training.
    """
    ids = listed(prompt)
    if ids is not None:
        if {*map(type, ids)} <= {int}:
            return tuple(ids)
        values = [plain(part) for part in ids]
        wrong = [part for part in values if type(part) is not int]
        if wrong:
            raise Refused(field, "invalid_type", f"token ids must be integers, got {short(wrong[0])}")
        return tuple(values)
    if not isinstance(plain(prompt), str):
        raise Refused(field, "invalid_type", f"must be text or a list of token ids, got {short(prompt)}")
    text = text_of(prompt)
    if text is None:
        raise Refused(
            field,
            "invalid_value",
            f"{short(prompt)} is not valid text: remove the lone surrogate, which UTF-8 cannot encode",
        )
    if texts.tokenizer is None:
        raise Refused(field, "unsupported", f"{short(text)} is text and the engine has no tokenizer: give token ids")
    end = "" if not ends or not text or text.endswith(texts.prompt_end) else texts.prompt_end
    encoded = encode_text(texts.tokenizer, text + end, add_special_tokens=special is not False, field=field)
    begin: Any = texts.tokenizer.bos_token_id if infills and special is not False else None
    return encoded if begin in (None, *encoded[:1]) else (begin, *encoded)


def encode_suffix(texts: TextEncoder, suffix: Prompt) -> Ids:
    """Return the ids of a suffix; text gets an end-of-sequence token, as in DreamOn's training. Raises Refused."""
    ids = encode(texts, suffix, special=False, ends=False, field="suffix")
    return ids + texts.first.config.spec.eos_ids[:1] if isinstance(suffix, str) else ids


def encode_pins(texts: TextEncoder, pins: object) -> dict[int, int]:
    """Return pins as a mapping of offsets in the answer to token ids.

    Each value of `pins` is an id or a text; a text fills as many offsets as it has tokens. Raises Refused for
    anything else, for a text without tokens, and if an offset has two tokens.
    """
    form = "must be a mapping of offsets in the answer to texts or token ids"
    if not isinstance(pins, dict):
        raise Refused("pins", "invalid_type", f"{form}, got {short(pins)}")
    tokens: dict[int, int] = {}
    for offset, pin in pairs_of(pins) or ():
        offset, pin = plain(offset), plain(pin)
        text = text_of(pin)
        if type(offset) is not int or (text is None and type(pin) is not int):
            raise Refused("pins", "invalid_type", f"{form}, got the entry {short((offset, pin))}")
        ids = (pin,) if text is None else encode(texts, text, special=False, ends=False, field=f"pins.{offset}")
        if not ids:
            raise Refused(f"pins.{offset}", "invalid_value", f"{short(text)} has no tokens: leave it out")
        for position, token in enumerate(ids, offset):
            if position in tokens:
                raise Refused(
                    "pins", "conflict", f"offset {position} has two tokens, one of them from {short(pin)} at offset {offset}"
                )
            tokens[position] = token
    return dict(sorted(tokens.items()))


def as_list(prompts: Prompts, name: str = "prompts") -> list[Prompt]:
    """Return one prompt or many as a list. A text, list of ids or 1-D array is one prompt.

    Raises Refused, with the argument's name, for anything else, and for a list that mixes numbers and prompts.
    """
    value: Any = plain(prompts)
    if isinstance(value, str):
        return [value]
    items = listed(value)
    if items is None:
        raise Refused(name, "invalid_type", f"must be text, token ids, or a list of these, got {short(prompts)}")
    many: list[Any] = [plain(part) for part in items]
    numbers = sum(type(part) in (int, float, bool) for part in many)
    if many and numbers == len(many):
        return [many]
    if numbers:
        raise Refused(
            name, "invalid_type", f"the list mixes token ids and whole {name}: give one list of ids, or a list of {name}"
        )
    return many


def is_one(prompts: object) -> bool:
    """Return whether `as_list` reads this as one prompt. An empty list counts as one, without token ids."""
    items = listed(plain(prompts))
    return not items or type(plain(items[0])) in (int, float, bool)


def with_stop_ids(params: SamplingParams, tokenizer: Tokenizer | None) -> SamplingParams:
    """Return `params` with the ids of stop strings that are special tokens, because these have no text in answers."""
    if not params.stop or tokenizer is None:
        return params
    ids = special_ids(tokenizer, params.stop).difference(params.stop_token_ids)
    return replace(params, stop_token_ids=(*params.stop_token_ids, *sorted(ids)))


def ids_of(engine: TextEncoder, prompt: Prompt, params: SamplingParams, *, explicit: bool = False, **how: Any) -> Ids:
    """Return the ids of a prompt, as `encode` does. Warn if `max_tokens` does not fit, unless it is a default.

    If `explicit`, raise Refused instead, even for a value that equals a default.
    """
    ids = encode(engine, prompt, infills=bool(params.suffix), **how)
    reason = refusal_of_max_tokens(engine.first.config, Request(0, ids, params))
    if reason and explicit:
        raise Refused(*reason)
    if reason and params.max_tokens not in (engine.max_tokens, SamplingParams().max_tokens):
        warn(str(reason), stacklevel=3)
    return ids


def params_of(engine: TextEncoder, params: object) -> SamplingParams:
    """Return `params` (None: the defaults) with rules instead of names, and with ids of stop strings.

    Raises Refused if it is invalid.
    """
    params, tokenizer = SamplingParams(max_tokens=engine.max_tokens) if params is None else params, engine.tokenizer
    if type(params) is not SamplingParams:
        raise Refused("sampling_params", "invalid_type", f"must be SamplingParams, got {short(params)}")
    options = dict(params.strategy_options)
    named = any(isinstance(options.get(name), str) for name in rules.HOLDERS)
    return with_stop_ids(replace(params, strategy_options=rules.with_values(options)) if named else params, tokenizer)


def numbered(prompts: list[Ids], params: Sequence[SamplingParams]) -> list[Request]:
    """Return one request per prompt. Equal requests get different indices (seeds)."""
    counts: Counter[tuple[Ids, SamplingParams]] = Counter()
    requests: list[Request] = []
    for prompt, own in zip(prompts, params, strict=True):
        requests.append(Request(0, prompt, own, index=counts[prompt, own]))
        counts[prompt, own] += 1
    return requests
