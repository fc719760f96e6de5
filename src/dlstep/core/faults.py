"""Blame: what goes wrong inside a strategy or a rule ends the request that brought it, and nothing else.

Strategies and rules are user code. Wherever the core calls them, whatever they raise becomes a RequestFault that names the
request (`fault_of`). The state is not changed by a function that raises one: `fail(state,
fault.request_id, str(fault))` ends that request, and the same function then serves the others. `Decode` does so by itself.

What strategies and rules of this package answer is proven by laws. Answers of others are checked where the core takes them
(`contract.py`): a wrong one raises WrongAnswer inside the same boundary.
"""

from collections.abc import Iterator
from pathlib import Path
from traceback import format_exception_only
from types import CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING

from .errors import DlstepError

if TYPE_CHECKING:
    from .sequence import Sequence

PACKAGE = f"{Path(__file__).parents[1]}"
LONGEST = 300  # characters of an exception's message that are repeated


class RequestFault(DlstepError):
    """The strategy or the rule of one request failed, or answered wrongly; the message is the reason for the user.

    Args:
        request_id: The caller's id of the request.
        reason: What happened, with the step, the position and the place in the user's code.
    """

    def __init__(self, request_id: int, reason: str) -> None:
        super().__init__(reason)
        self.request_id = request_id


class UserCodeTimeout(BaseException):
    """A strategy or a rule did not return within `user_code_timeout`. Raised in its thread by whoever has a clock.

    No Exception, so that user code does not catch it by accident.
    """


class WrongAnswer(Exception):
    """A strategy or a rule returned what the core cannot use.

    Args:
        owner: The strategy or the rule.
        hook: The name of the method.
        what: What it returned, and what it should.
    """

    def __init__(self, owner: object, hook: str, what: str) -> None:
        super().__init__(f"{type(owner).__qualname__}.{hook}{_defined(type(owner), hook)} returned {what}")


def fault_of(sequence: "Sequence", step: int, error: BaseException) -> RequestFault:
    """Return the fault of the request of `sequence`, whose strategy or rule raised `error` in `step`.

    Everything counts, SystemExit too, which would end a server; but KeyboardInterrupt is the user's at the keyboard and is
    raised as it is.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    position = sequence.window[0].start if sequence.window else sequence.final
    return RequestFault(sequence.goal.request.id, f"step {step}, from position {position} on: {described(error)}")


def measured(sequence: "Sequence", step: int) -> int:
    """The most sampling forwards that a sequence may still take, by its strategy. Raises RequestFault."""
    try:
        return sequence.goal.strategy.measure(sequence)
    except BaseException as error:
        raise fault_of(sequence, step, error) from error


def described(error: BaseException) -> str:
    """Return in one line what user code raised and where: the hook that the core called, and the user's innermost frame."""
    if isinstance(error, WrongAnswer):
        return str(error)
    raised = " ".join("".join(format_exception_only(error)).split())[:LONGEST]
    frames = list(_user_frames(error.__traceback__))
    if not frames:
        return raised
    (hook, _), (inner, line) = frames[0], frames[-1]
    return f"{hook.co_qualname} raised {raised} ({_place(inner.co_filename, line)})"


def _user_frames(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    """Code and line of the frames outside of this package, the outermost first."""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            yield code, traceback.tb_lineno
        traceback = traceback.tb_next


def _defined(owner: type, hook: str) -> str:
    """Where the method is written, for a message; nothing for what is no plain method."""
    method = next((vars(cls)[hook] for cls in owner.__mro__ if hook in vars(cls)), None)
    code = method.__code__ if isinstance(method, FunctionType) else None
    return f" ({_place(code.co_filename, code.co_firstlineno)})" if code is not None else ""


def _place(filename: str, line: int) -> str:
    return f"{Path(filename).name}:{line}"
