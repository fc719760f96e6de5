"""Split an answer into reasoning, text and function calls, as chat templates define them.

Only the beginning of an answer can be reasoning. A call that is malformed or names an unknown
function remains text.
"""

from collections.abc import Collection
from typing import Literal

from ...text.detokenize import held_back
from .call_formats import CallFormat, Part
from .tool_calls import CallReader

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
        self._scanner, self._scanned = form.scanner(), 0
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
        self._skips, called = False, self._forced.push(text)
        if called.name or called.arguments:
            self._parts.append(Part("call", called.arguments, called.name or ""))
        self.calls = int(self._forced.complete)
        return False

    def _plain(self, end: bool) -> bool:
        if not self._functions:
            self._emit("text", self._waiting)
            self._waiting = ""
            return False
        if not self._until(self._form.call, "text", end):
            return False
        self._mode, self._scanner, self._scanned = "call", self._form.scanner(), 0
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
        begin = len(self._waiting) - len(self._waiting.lstrip())
        if begin < len(self._waiting):
            self._scanner.push(self._waiting[max(begin, self._scanned) :])
            self._scanned = len(self._waiting)
        if self._scanner.broken:
            return self._malformed()
        if self._scanner.end is None:
            return self._malformed() if end else False
        body, rest = self._waiting[: begin + self._scanner.end], self._waiting[begin + self._scanner.end :].lstrip()
        called = self._form.called
        if not rest.startswith(called):
            return self._malformed() if end or not called.startswith(rest) else False
        call = self._form.part(body, self._functions)
        if call is None:
            return self._malformed()
        if self._most is None or self.calls < self._most:
            self._parts.append(call._replace(number=self.calls))
            self.calls += 1
        self._mode, self._waiting = "text", rest.removeprefix(called)
        self._blank, self._skips = self._blank if self._text else "", True
        return True

    def _malformed(self) -> bool:
        """Treat the tag as text, and continue after the tag."""
        self._emit("text", self._form.call)
        self._mode = "text"
        return True
