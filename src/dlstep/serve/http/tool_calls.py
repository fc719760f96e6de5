"""Calls of functions: the schema that makes an answer a call, and the call in OpenAI's form.

With a named function, the answer is its arguments. With `tool_choice="required"`, it is an object of
the name and the arguments of one function.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from .strict import Strict

Name = Annotated[str, Field(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
BEGINNING = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')


class Function(Strict):
    """A function that the model may call. Its parameters are a JSON schema; by default it has none."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The schema of the arguments."""
        return self.parameters or NOTHING


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


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class CalledFunction(Strict):
    """A function that was called, with its arguments as JSON text."""

    name: Name
    arguments: str


class ToolCall(Strict):
    """A call of an earlier turn."""

    id: str
    type: Literal["function"]
    function: CalledFunction


def chosen(tools: Sequence[Tool], choice: ToolChoice | None) -> str | None:
    """Return the function that the answer calls: "" for any of them, None if it calls none.

    Raises ValueError for a choice that cannot be met.
    """
    if not tools or choice == "none":
        if tools or choice in (None, "none", "auto"):
            return None
        raise ValueError("tool_choice needs tools: give the functions that may be called")
    if choice in (None, "auto"):
        raise ValueError('tool_choice "auto" is not supported: give "required", "none", or the name of a function')
    if not isinstance(choice, NamedTool):
        return ""
    name = choice.function.name
    if name not in (known := [tool.function.name for tool in tools]):
        raise ValueError(f"tool_choice names the function {name!r}: the tools are {', '.join(known)}")
    return name


def call_schema(tools: Sequence[Tool], name: str) -> Mapping[str, Any]:
    """Return the schema of answers that call the function `name`, or any function if it is empty."""
    functions = [tool.function for tool in tools if name in ("", tool.function.name)]
    if name:
        return functions[0].arguments
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": function.name}, "arguments": function.arguments},
            "required": ["name", "arguments"],
        }
        for function in functions
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


class Called(NamedTuple):
    """The new part of a call: the name of the function once it is known, and more of its arguments."""

    name: str | None
    arguments: str


class CallReader:
    """Reads a call from the pieces of an answer, however they are cut.

    Args:
        name: The function that the answer calls; empty if the answer names it.
    """

    def __init__(self, name: str) -> None:
        self._named = bool(name)  # whether the name was read
        self._waiting, self._name = "", name  # text that is not passed on yet
        self._depth, self._quoted, self._escaped, self._over = 0, False, False, False

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
        if self._over:
            return ""
        for place, letter in enumerate(text):
            if self._quoted:
                self._quoted = self._escaped or letter != '"'
                self._escaped = not self._escaped and letter == "\\"
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if not self._depth:
                    self._over = True
                    return text[: place + 1]
        return text


def read_call(name: str, text: str) -> Called:
    """Return the call of a whole answer."""
    called = CallReader(name).push(text)
    return Called(called.name or name, called.arguments)
