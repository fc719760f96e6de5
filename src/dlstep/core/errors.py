"""Errors between the core and its callers. Invalid arguments raise ValueError instead.

Strategies and rules are user code. If one fails, only the request that uses it ends: the core calls user
code through `contract.run_user_code`, which turns any exception except KeyboardInterrupt into a RequestFault that
names the request. A core function that raises a RequestFault leaves the state unchanged. The caller ends
the request with `fail(state, fault.request_id, str(fault))` and calls the function again for the other
requests, as `Decode` does.

The core checks what strategies and rules return (`contract.py`, `rule.py`): a wrong value raises
WrongAnswer, which becomes a RequestFault in the same way.
"""

import dataclasses
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import format_exception_only
from types import CodeType, FunctionType, TracebackType


class DlstepError(Exception):
    """Base class of all dlstep errors."""


class SamplesMismatch(DlstepError):
    """Samples that do not match their plan, or a plan that was made for another state."""


class CacheMismatch(DlstepError):
    """A plan that needs a KV cache the driver lacks. The plan of `rebuild(state)` needs none."""


class ReplayDiverged(DlstepError):
    """A replayed trace whose plan differs from the recorded one."""


PACKAGE = f"{Path(__file__).parents[1]}"
NOT_USER_CODE = (PACKAGE, dataclasses.__file__, "<string>")  # dataclasses compile methods from strings
LIBRARIES = ("<frozen", *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
LONGEST = 300  # characters of an exception's message that a reason quotes


class RequestFault(DlstepError):
    """A failure of the strategy or rule of one request; users see its message.

    Args:
        request_id: The caller's id of the request.
        reason: What happened, with the step, the position and the place in the user's code.
    """

    def __init__(self, request_id: int, reason: str) -> None:
        super().__init__(reason)
        self.request_id = request_id


class WrongAnswer(Exception):
    """A return value of a strategy or a rule that the core cannot use.

    Args:
        owner: The strategy or the rule.
        hook: The name of the method.
        what: The returned value and the allowed ones.
    """

    def __init__(self, owner: object, hook: str, what: str) -> None:
        super().__init__(f"{type(owner).__qualname__}.{hook}{defined(type(owner), hook)} returned {what}")


def described(error: BaseException) -> str:
    """Return a line with the exception, the hook that was called and the innermost frame of user code."""
    if isinstance(error, WrongAnswer):
        return str(error)
    raised = _one_line(error)
    frames = list(_user_frames(error.__traceback__))
    if not frames:
        return raised
    return f"{frames[0][0].co_qualname} raised {raised}{_innermost(frames)}"


def of_import(error: BaseException) -> str:
    """Return a line with the exception that a user's module raised, and the innermost frame of user code."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{type(error).__name__}: {error.msg} ({_place(error.filename, error.lineno)}: {(error.text or '').strip()})"
    return _one_line(error) + _innermost(list(_user_frames(error.__traceback__)))


def _innermost(frames: list[tuple[CodeType, int]]) -> str:
    """Return file and line of the innermost frame of user code. Frames of libraries count only if there is no other."""
    files = [(code.co_filename, line) for code, line in frames]
    own = [place for place in files if not place[0].startswith(LIBRARIES)]
    return f" ({_place(*(own or files)[-1])})" if files else ""


def _one_line(error: BaseException) -> str:
    return " ".join("".join(format_exception_only(error)).split())[:LONGEST]


def _user_frames(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    """Yield the code and the line of each frame of user code, outermost first."""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(NOT_USER_CODE):
            yield code, traceback.tb_lineno
        traceback = traceback.tb_next


def defined(owner: type, hook: str) -> str:
    """Return file and line of a method or property for a message; empty if `hook` is neither."""
    method = next((vars(cls)[hook] for cls in owner.__mro__ if hook in vars(cls)), None)
    method = method.fget if isinstance(method, property) else method
    code = method.__code__ if isinstance(method, FunctionType) else None
    return f" ({_place(code.co_filename, code.co_firstlineno)})" if code is not None else ""


def _place(filename: str, line: int) -> str:
    return f"{Path(filename).name}:{line}"
