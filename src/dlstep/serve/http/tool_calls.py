"""Calls of functions: the schema that makes an answer a call, and the reader of calls.

With a named function, the answer is its arguments. With `tool_choice="required"`, it is an object of
the name and the arguments of one function.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...text.json_schema import nested
from .schema import AllowedTools, Function, NamedTool, Tool, ToolChoice

OUTSIDE = frozenset(" \t\r\n,:+-.0123456789abcdefghijklmnopqrstuvwxyzE")  # of JSON, outside of strings and except brackets
BEGINNING = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')


def chosen(tools: Sequence[Tool], choice: ToolChoice | None) -> str | None:
    """Return the function that the answer must call: "" for any of them, None if it need not call any.

    Raises ValueError for a choice that cannot be met.
    """
    if not tools or choice == "none":
        if tools or choice in (None, "none", "auto"):
            return None
        raise ValueError("tool_choice needs tools: give the functions that may be called")
    known = [tool.function.name for tool in tools]
    named = (
        choice.allowed_tools.tools if isinstance(choice, AllowedTools) else [choice] if isinstance(choice, NamedTool) else []
    )
    for tool in named:
        if tool.function.name not in known:
            raise ValueError(f"tool_choice names the function {tool.function.name!r}: the tools are {', '.join(known)}")
    if isinstance(choice, NamedTool):
        return choice.function.name
    return None if _mode(choice) in (None, "auto") else ""


def _mode(choice: ToolChoice | None) -> ToolChoice | None:
    """Return the choice, or the mode of an `allowed_tools` choice."""
    return choice.allowed_tools.mode if isinstance(choice, AllowedTools) else choice


def _allowed(tools: Sequence[Tool], choice: ToolChoice | None) -> list[Function]:
    """Return the functions that may be called."""
    names = {tool.function.name for tool in choice.allowed_tools.tools} if isinstance(choice, AllowedTools) else None
    return [tool.function for tool in tools if names is None or tool.function.name in names]


def callable_freely(tools: Sequence[Tool], choice: ToolChoice | None) -> tuple[str, ...]:
    """Return the names of the functions that the model may decide to call."""
    return tuple([function.name for function in _allowed(tools, choice)]) if _mode(choice) in (None, "auto") else ()


def call_schema(tools: Sequence[Tool], name: str, choice: ToolChoice | None = None) -> Mapping[str, Any]:
    """Return the schema of answers that call the function `name`, or any that `choice` allows if it is empty."""
    functions = [function for function in _allowed(tools, choice) if name in ("", function.name)]
    if name:
        return functions[0].arguments
    places = ["#"] if len(functions) == 1 else [f"#/anyOf/{index}" for index in range(len(functions))]
    calls: list[dict[str, Any]] = [
        {
            "type": "object",
            "properties": {
                "name": {"const": function.name},
                "arguments": nested(function.arguments, f"{place}/properties/arguments"),
            },
            "required": ["name", "arguments"],
        }
        for function, place in zip(functions, places, strict=True)
    ]
    drafts = [function.arguments.get("$schema") for function in functions]
    draft = {"$schema": drafts[0]} if drafts[0] and drafts.count(drafts[0]) == len(drafts) else {}
    return draft | (calls[0] if len(calls) == 1 else {"anyOf": calls})


class Called(NamedTuple):
    """The new part of a call: the name of the function once it is known, and more of its arguments."""

    name: str | None
    arguments: str


class ObjectScanner:
    """A scanner that finds the end of a JSON object in pieces of text, without parsing the object."""

    def __init__(self) -> None:
        self._depth, self._quoted, self._escaped, self._read = 0, False, False, 0
        self.end: int | None = None
        """Number of characters of the object; None until it ends."""
        self.broken = False
        """Whether the text cannot be a JSON object."""

    def push(self, text: str) -> None:
        """Scan more text, unless the object has ended or is broken."""
        for letter in text if self.end is None and not self.broken else "":
            self._read += 1
            if self._quoted:
                self._quoted = self._escaped or letter != '"'
                self._escaped = not self._escaped and letter == "\\"
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                self.end = None if self._depth else self._read
            elif letter not in OUTSIDE:
                self.broken = True
            self.broken = self.broken or (self._depth <= 0 and self.end is None)
            if self.broken or self.end is not None:
                return


class CallReader:
    """Reads a call from the pieces of an answer, however they are cut.

    Args:
        name: The function that the answer calls; empty if the answer names it.
    """

    def __init__(self, name: str) -> None:
        self._named = bool(name)  # whether the name was read
        self._waiting, self._name = "", name  # text that is not passed on yet
        self._scanner, self._passed = ObjectScanner(), 0

    @property
    def complete(self) -> bool:
        """Whether the arguments have ended, or are not an object: then the reader does not search for their end."""
        return self._scanner.end is not None or self._scanner.broken

    def push(self, text: str) -> Called:
        """Return what `text` adds."""
        first: str | None = None
        if self._name and self._named:
            first, self._name = self._name, ""
        self._waiting += text
        if not self._named:
            begun = BEGINNING.match(self._waiting)
            if begun is None:
                return Called(None, "")
            first, self._named = json.loads(begun[1]), True
            self._waiting = self._waiting[begun.end() :]
        arguments, self._waiting = self._arguments(self._waiting), ""
        return Called(first, arguments)

    def _arguments(self, text: str) -> str:
        """Return the beginning of `text` that belongs to the arguments, which are one object."""
        if self._scanner.end is not None:
            return ""
        text = text if self._passed else text.lstrip()  # clients parse each delta so far, and blanks alone are not JSON
        before, self._passed = self._passed, self._passed + len(text)
        self._scanner.push(text)
        return text if self._scanner.end is None else text[: self._scanner.end - before]
