"""Function calls: the schema of forced calls, the formats of other calls, and the readers of answers.

If `tool_choice` names a function, the answer is the JSON object of its arguments. If it is "required",
the answer is a JSON object with the name and the arguments of one function. Otherwise the chat template
defines how the model writes calls and the reasoning before them.
"""

import json
import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, NoReturn

from ...core import Json, Refused, Texts
from ...text.chat import template_of
from ...text.detokenize import held_back
from ..messages import Facts
from .schema import NOTHING, AllowedTools, ChatRequest, Function, NamedTool, ToolChoice

FORCED = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')  # what precedes the arguments
BRACE, KEY, NEXT = map(re.compile, (r"\s*\{\s*", r'("(?:[^"\\]|\\.)*")\s*:\s*', r"\s*[,}]\s*"))  # parts of an object
QUOTE = '<|"|>'  # around strings in Gemma's calls, which contain no escapes
GEMMAS = re.compile(r"call:([a-zA-Z0-9_.-]{1,64})(\{.*)", re.DOTALL)
BRACKETS = re.compile(r'<\|"\|>(.*?)<\|"\|>|([{}\[\],:])|([^{}\[\],:<]+)', re.DOTALL)


def called_function(body: ChatRequest) -> str | None:
    """Return the function that the answer must call: "" for any of them, None if it need not call any.

    Raises Refused for a choice that cannot be met.
    """
    mode, names = _mode(body.tool_choice)
    known = [tool.function.name for tool in body.tools or ()]
    if not known and (names or mode == "required"):
        raise Refused("tool_choice", "conflict", "it needs tools: give the functions that may be called")
    for name in names:
        if name not in known:
            raise Refused("tool_choice", "unknown_name", f"there is no function {name!r}: the tools are {', '.join(known)}")
    return names[0] if mode == "named" else "" if mode == "required" else None


def _mode(choice: ToolChoice | None) -> tuple[str, list[str]]:
    """Return the mode of a choice, and the functions that it names."""
    if isinstance(choice, AllowedTools):
        return choice.allowed_tools.mode, [tool.function.name for tool in choice.allowed_tools.tools]
    if isinstance(choice, NamedTool):
        return "named", [choice.function.name]
    return choice or "auto", []


def _allowed(body: ChatRequest) -> list[Function]:
    """Return the functions that may be called."""
    _, names = _mode(body.tool_choice)
    return [tool.function for tool in body.tools or () if not names or tool.function.name in names]


def callable_freely(body: ChatRequest) -> Texts:
    """Return the names of the functions that the model may decide to call."""
    return tuple(function.name for function in _allowed(body)) if _mode(body.tool_choice)[0] == "auto" else ()


def call_schema(body: ChatRequest) -> Json:
    """Return the schema of answers that call the named function, or any that may be called."""
    functions = _allowed(body)
    if isinstance(body.tool_choice, NamedTool):
        return functions[0].arguments
    calls: list[Json] = []
    for index, function in enumerate(functions):
        legacy = "draft-04" in str(function.arguments.get("$schema"))
        # With an identifier, references within the parameters still lead to parts of the parameters.
        arguments = {**function.arguments, "id" if legacy else "$id": f"urn:function:{index}"}
        if "$ref" in arguments:  # drafts before 2019 ignore an identifier next to `$ref`
            arguments["allOf"] = [{"$ref": arguments.pop("$ref")}, *arguments.get("allOf", ())]
        properties = {"name": {"const": function.name}, "arguments": arguments}
        calls.append({**NOTHING, "properties": properties, "required": ["name", "arguments"]})
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


class Part(NamedTuple):
    """A part of an answer: reasoning, text, or a function call, whose `text` is its arguments as JSON.

    `number` counts the calls of the answer. A call without a name continues the call of the previous part.
    """

    kind: Literal["reasoning", "text", "call"]
    text: str
    name: str = ""
    number: int = 0


class CallFormat(NamedTuple):
    """A format of reasoning and calls.

    `think` and `thought` are the marks around reasoning, at the beginning of an answer; `call` and
    `called` are the marks around each call, and `begins` is the text that every call begins with.
    `template` lists texts that every template of this format contains, and `others` texts that only
    templates of similar formats contain. `tokens` lists marks that are tokens in some tokenizers: first
    the two around reasoning, then the others. The text of an answer includes these tokens even if they
    are special tokens; it includes no other special tokens. `read` returns the name of a call and the
    JSON text of its arguments; it raises ValueError or KeyError for malformed calls.
    """

    think: str
    thought: str
    call: str
    called: str
    template: Texts
    others: Texts
    begins: str
    read: Callable[[str], tuple[str, str]]
    tokens: Texts

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


def format_in(facts: Facts) -> CallFormat | None:
    """Return the format of calls; without one, the format whose reasoning marks the tokenizer or chat template has."""
    template = template_of(facts.tokenizer, facts.chat_template)
    if facts.tokenizer is None or template is None:
        return None
    if (calls := format_of(template)) is not None:
        return calls
    known = {str(token) for token in facts.tokenizer.added_tokens_decoder.values()}
    return next((form for form in FORMATS if all(mark in known or mark in template for mark in form.tokens[:2])), None)


def begins_reasoning(facts: Facts, form: CallFormat, prompt: Sequence[int]) -> bool:
    """Return whether the prompt ends with the mark `form.think`, so that the answer begins with reasoning."""
    assert facts.tokenizer is not None, "conversations need a tokenizer"
    end = list(prompt[-2 * len(form.think) :])  # whitespace may follow
    shown = facts.tokenizer.decode(end, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return isinstance(shown, str) and shown.rstrip().endswith(form.think)


def _read_json(body: str) -> tuple[str, str]:
    members, at = dict[str, str](), BRACE.match(body)
    while at is not None and "}" not in at[0]:
        if (key := KEY.match(body, at.end())) is None:
            raise ValueError("a member of an object begins with its name")
        _, end = DECODER.raw_decode(body, key.end())
        members[json.loads(key[1])], at = body[key.end() : end], NEXT.match(body, end)
    if at is None or at.end() < len(body):
        raise ValueError("a call is one object")
    return json.loads(members["name"]), members["arguments"]


def _read_gemma(body: str) -> tuple[str, str]:
    begun = GEMMAS.fullmatch(body)
    if begun is None:
        raise ValueError("a call begins with call: and a name")
    rest, parts, end = begun[2], list[str](), 0
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
    ("<tool_call>", "</tool_call>", '"name"', '"arguments"'), ("<function=", "<arg_key>"), "{", _read_json,
    ("<think>", "</think>", "<tool_call>", "</tool_call>"),
)  # fmt: skip
GEMMA = CallFormat(
    "<|channel>thought", "<channel|>", "<|tool_call>", "<tool_call|>",
    ("<|tool_call>call:", "<tool_call|>", QUOTE), (), "call:", _read_gemma,
    ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", QUOTE),
)  # fmt: skip
FORMATS = (HERMES, GEMMA)


class CallReader:
    """Reads a forced call from the pieces of an answer, however they are cut.

    Args:
        name: The function that the answer calls; empty if the answer names it.
    """

    def __init__(self, name: str) -> None:
        self._name, self._named = name, bool(name)
        self._waiting = ""  # text until the answer has named the function
        self._arguments = ""
        self.complete = False
        """Whether the arguments have ended."""

    def push(self, text: str) -> Part:
        """Return what `text` adds: the name, once it is known, and more of the arguments."""
        name, self._name = self._name, ""
        if not self._named:
            self._waiting += text
            if (begun := FORCED.match(self._waiting)) is None:
                return Part("call", "")
            name, self._named = json.loads(begun[1]), True
            text = self._waiting[begun.end() :]
        return Part("call", "" if self.complete else self._more(text), name)

    def _more(self, text: str) -> str:
        """Return the beginning of `text` that belongs to the arguments, which are one object."""
        text = text if self._arguments else text.lstrip()  # clients parse incomplete arguments, but fail on whitespace
        before = len(self._arguments)
        self._arguments += text
        if "}" not in text:  # reading all arguments again for each token would take quadratic time
            return text
        try:
            value, end = DECODER.raw_decode(self._arguments)
        except (ValueError, RecursionError):  # it has not ended
            return text
        self.complete = isinstance(value, dict)
        return text[: end - before] if self.complete else text


Mode = Literal["start", "reasoning", "text", "call", "forced"]


class AnswerReader:
    """A reader of the parts of an answer that arrives in pieces.

    The joined parts do not depend on where the pieces begin and end. Whitespace around reasoning and
    calls is dropped.

    Args:
        form: The format of reasoning and calls.
        functions: Names of the functions that may be called. Without any, calls remain text.
        mode: How the answer begins: "reasoning" if the prompt ends with `form.think`, "start" if the
            answer may begin with it, "text" if reasoning remains text.
        forced: The function that the answer calls after its reasoning; "" if the answer names it,
            None if it need not call any.
        most: The maximum number of calls; further calls are dropped.
    """

    def __init__(
        self,
        form: CallFormat,
        functions: Collection[str] = (),
        *,
        mode: Mode = "start",
        forced: str | None = None,
        most: int | None = None,
    ) -> None:
        self._form, self._functions, self._most = form, functions, most
        self._forced = None if forced is None else CallReader(forced)
        self._after: Mode = "text" if forced is None else "forced"  # the mode after reasoning
        self._mode: Mode = self._after if mode == "text" else mode
        self._waiting = ""  # text that is in no part yet; in a call, all text after the tag
        self._skips = mode == "reasoning"  # whether to drop whitespace
        self._blank = ""  # whitespace that is kept only if text follows
        self._parts: list[Part] = []
        self._text = False  # whether there was text
        self.calls = 0
        """Number of complete calls so far."""

    def push(self, text: str, *, end: bool = False) -> list[Part]:
        """Return the parts that become certain with `text`, which is the last piece if `end`."""
        self._waiting += text
        steps = {
            "start": self._start,
            "reasoning": self._reasoning,
            "text": self._plain,
            "call": self._call,
            "forced": self._forced_call,
        }
        while steps[self._mode](end):
            pass
        if end and self._blank and not self._skips:
            self._parts.append(Part("reasoning" if self._mode == "reasoning" else "text", self._blank))
        parts, self._parts = self._parts, []
        return parts

    def _start(self, end: bool) -> bool:
        """Look for reasoning at the beginning. Like the methods of the other modes, return whether the mode has changed."""
        begun, think = self._waiting.lstrip(), self._form.think
        if begun.startswith(think):
            self._mode, self._waiting, self._skips = "reasoning", begun.removeprefix(think), True
        elif end or not think.startswith(begun):
            self._mode = self._after
        return self._mode != "start"

    def _reasoning(self, end: bool) -> bool:
        if not self._until(self._form.thought, "reasoning", end):
            return False
        self._mode, self._blank, self._skips = self._after, "", True
        return True

    def _forced_call(self, end: bool) -> bool:
        del end
        assert self._forced is not None, "the answer calls a function"
        text, self._waiting = self._waiting.lstrip() if self._skips else self._waiting, ""
        if not text:
            return False
        self._skips, part = False, self._forced.push(text)
        if part.name or part.text:
            self._parts.append(part)
        self.calls = int(self._forced.complete)
        return False

    def _plain(self, end: bool) -> bool:
        if not self._functions:
            self._emit("text", self._waiting)
            self._waiting = ""
            return False
        if not self._until(self._form.call, "text", end):
            return False
        self._mode = "call"
        return True

    def _until(self, mark: str, kind: Literal["reasoning", "text"], end: bool) -> bool:
        """Add the text before `mark` to the parts, and drop the mark. Return whether the mark was found."""
        before, found, after = self._waiting.partition(mark)
        if not found:
            sure = len(before) - (0 if end else held_back(before, (mark,)))
            before, after = before[:sure], before[sure:]
        self._emit(kind, before)
        self._waiting = after
        return bool(found)

    def _emit(self, kind: Literal["reasoning", "text"], text: str) -> None:
        """Add text to the parts, but hold back whitespace at its end until more text follows."""
        if self._skips:
            text = text.lstrip()
            self._skips = not text
        whole = self._blank + text if text else ""
        if kept := whole if kind == "text" and not self._functions else whole.rstrip():  # dropped only before a call
            self._parts.append(Part(kind, kept))
            self._text = self._text or kind == "text"
        self._blank = whole[len(kept) :] if text else self._blank

    def _call(self, end: bool) -> bool:
        begun, begins = self._waiting.lstrip(), self._form.begins
        if not begun.startswith(begins) and not begins.startswith(begun):
            return self._malformed()
        for mark in re.finditer(re.escape(self._form.called), self._waiting):  # arguments may contain it, too
            call = self._form.part(self._waiting[: mark.start()].strip(), self._functions)
            if call is None:
                continue
            if self._most is None or self.calls < self._most:
                self._parts.append(call._replace(number=self.calls))
                self.calls += 1
            self._mode, self._waiting = "text", self._waiting[mark.end() :]
            self._blank, self._skips = self._blank if self._text else "", True
            return True
        return self._malformed() if end else False

    def _malformed(self) -> bool:
        """Treat the tag as text, and continue after the tag."""
        self._emit("text", self._form.call)
        self._mode = "text"
        return True
