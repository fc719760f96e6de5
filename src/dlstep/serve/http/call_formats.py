"""Formats in which chat templates define reasoning and function calls in unconstrained answers."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, NoReturn, Protocol

from ...text.chat import template_of
from ..facts import ModelTexts
from .tool_calls import ObjectScanner

QUOTE = '<|"|>'  # around strings in Gemma's calls, which contain no escapes
BRACKETS = re.compile(r'<\|"\|>(.*?)<\|"\|>|([{}\[\],:])|([^{}\[\],:<]+)', re.DOTALL)
BEGINNING = re.compile(r"call:([a-zA-Z0-9_.-]{1,64})\{")
BRACE, KEY, NEXT = map(re.compile, (r"\s*\{\s*", r'("(?:[^"\\]|\\.)*")\s*:\s*', r"\s*[,}]\s*"))  # parts of an object


class Part(NamedTuple):
    """A part of an answer: reasoning, text, or a function call, whose `text` is its arguments as JSON.

    `number` counts the calls of the answer. A call without a name continues the call of the previous part.
    """

    kind: Literal["reasoning", "text", "call"]
    text: str
    name: str = ""
    number: int = 0


class Scanner(Protocol):
    """A scanner that finds the end of a call, whose text arrives in pieces.

    `end` is the length of the call, once it is complete. `broken` is True if the text is not a call.
    """

    end: int | None
    broken: bool

    def push(self, text: str) -> None:
        """Scan more text."""
        ...


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A format of reasoning and calls.

    `think` and `thought` are the marks around reasoning, at the beginning of an answer; `call` and
    `called` are the marks around each call. `template` lists texts that every template of this format
    contains, and `others` texts that only templates of similar formats contain. `tokens` lists the
    tokens of the format in some tokenizers, first the two around reasoning. They belong to the text of
    an answer even if they are special tokens; other special tokens do not. `read` returns the name of a
    call and the JSON text of its arguments; it raises ValueError or KeyError for malformed calls.
    """

    think: str
    thought: str
    call: str
    called: str
    template: tuple[str, ...]
    others: tuple[str, ...]
    scanner: Callable[[], Scanner]
    read: Callable[[str], tuple[str, str]]
    tokens: tuple[str, ...]

    def part(self, body: str, functions: Collection[str]) -> Part | None:
        """Return the call in the text between the marks; None if it is malformed or calls none of `functions`."""
        try:
            name, arguments = self.read(body)
        except (ValueError, KeyError, RecursionError):
            return None
        return Part("call", arguments, name) if name in functions and arguments.startswith("{") else None


@lru_cache(maxsize=8)
def format_of(template: str | None) -> CallFormat | None:
    """Return the format in which a chat template instructs the model to write calls; None for other formats."""
    bare = (template or "").replace("\\", "")
    for form in FORMATS:
        if all(mark in bare for mark in form.template) and not any(mark in bare for mark in form.others):
            return form
    return None


def format_in(texts: ModelTexts) -> CallFormat | None:
    """Return the format of calls; without one, the format whose reasoning marks the tokenizer or chat template has."""
    template = template_of(texts.tokenizer, texts.chat_template)
    if texts.tokenizer is None or template is None:
        return None
    if (calls := format_of(template)) is not None:
        return calls
    known = {str(token) for token in texts.tokenizer.added_tokens_decoder.values()}
    return next((form for form in FORMATS if all(mark in known or mark in template for mark in form.tokens[:2])), None)


def begins_reasoning(texts: ModelTexts, form: CallFormat, prompt: Sequence[int]) -> bool:
    """Return whether the prompt ends with the mark `form.think`, so that the answer begins with reasoning."""
    assert texts.tokenizer is not None, "conversations need a tokenizer"
    end = list(prompt[-2 * len(form.think) :])  # whitespace may follow
    shown = texts.tokenizer.decode(end, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return isinstance(shown, str) and shown.rstrip().endswith(form.think)


class GemmaScanner:
    """A scanner of `call:NAME{...}`, which counts the brackets outside of quoted strings."""

    def __init__(self) -> None:
        self._text, self._depth, self._quoted, self._read = "", 0, False, 0
        self.end: int | None = None
        self.broken = False

    def push(self, text: str) -> None:
        """Scan more text, unless the call has ended or is broken."""
        if self.end is not None or self.broken:
            return
        self._text += text
        if not self._depth:
            if (begun := BEGINNING.match(self._text)) is None:
                self.broken = "{" in self._text or len(self._text) > 80 or not _begins_call(self._text)
                return
            self._read, self._depth = begun.end(), 1
        while self.end is None and not self.broken and self._read < len(self._text):
            if self._text.startswith(QUOTE, self._read):
                self._quoted, self._read = not self._quoted, self._read + len(QUOTE)
            elif QUOTE.startswith(self._text[self._read : self._read + len(QUOTE)]):
                return  # the rest of the quote may follow
            elif self._quoted:
                quote = self._text.find(QUOTE[0], self._read + 1)
                self._read = quote if quote >= 0 else len(self._text)
            else:
                letter, self._read = self._text[self._read], self._read + 1
                self._depth += (letter in "{[") - (letter in "}]")
                self.end = None if self._depth else self._read
                self.broken = letter == "<"


def _begins_call(text: str) -> bool:
    return text.startswith("call:") or "call:".startswith(text)


def _read_json(body: str) -> tuple[str, str]:
    members, at = dict[str, str](), BRACE.match(body)
    while at is not None and "}" not in at[0]:
        if (key := KEY.match(body, at.end())) is None:
            raise ValueError("a member of an object begins with its name")
        _, end = DECODER.raw_decode(body, key.end())
        members[json.loads(key[1])], at = body[key.end() : end], NEXT.match(body, end)
    if at is None:
        raise ValueError("a call is an object")
    return json.loads(members["name"]), members["arguments"]


def _read_gemma(body: str) -> tuple[str, str]:
    begun = BEGINNING.match(body)
    if begun is None:
        raise ValueError("a call begins with call: and a name")
    rest, parts, end = body[begun.end() - 1 :], list[str](), 0
    for found in BRACKETS.finditer(rest):
        if found.start() != end:
            raise ValueError("a quote is not closed")
        quoted, bracket, bare = found.groups()
        end = found.end()
        if bracket is not None:
            parts.append(bracket)
        elif quoted is not None or rest[end : end + 1] == ":":  # a string, or the name of an argument
            parts.append(json.dumps(bare.strip() if quoted is None else quoted, ensure_ascii=False))
        else:
            parts.append(bare)
    if end != len(rest):
        raise ValueError("a quote is not closed")
    DECODER.decode("".join(parts))  # raises ValueError if this is not JSON
    return begun[1], "".join(parts)


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


DECODER = json.JSONDecoder(parse_constant=_not_json)  # only finds errors and ends of values: their text is passed on


HERMES = CallFormat(
    "<think>", "</think>", "<tool_call>", "</tool_call>",
    ("<tool_call>", "</tool_call>", '"name"', '"arguments"'), ("<function=", "<arg_key>"), ObjectScanner, _read_json,
    ("<think>", "</think>", "<tool_call>", "</tool_call>"),
)  # fmt: skip
GEMMA = CallFormat(
    "<|channel>thought", "<channel|>", "<|tool_call>", "<tool_call|>",
    ("<|tool_call>call:", "<tool_call|>", QUOTE), (), GemmaScanner, _read_gemma,
    ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", QUOTE),
)  # fmt: skip
FORMATS = (HERMES, GEMMA)
