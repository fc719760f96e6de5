"""Refusals of invalid or unsupported input, and errors between the core and its callers.

A `Refusal` says which field cannot be used and why; functions called `refusal` return one, or None. `Refused` is the
exception that carries it. No code parses a message: outer layers branch on the code, and rename the field by one table.

Strategies and rules are user code. If one fails, only the request that uses it ends: where the core calls user
code, `request_fault` (`contract.py`) turns any exception except KeyboardInterrupt into a RequestFault
that names the request. A core function that raises a RequestFault leaves the state unchanged. The caller ends
the request with `fail(state, fault.request_id, str(fault))` and calls the function again for the other
requests, as `Decode` does.

The core checks what strategies and rules return (`contract.py`, `rule.py`): a wrong value raises
WrongAnswer, which becomes a RequestFault in the same way.
"""

import dataclasses
import sysconfig
from pathlib import Path
from traceback import format_exception_only, walk_tb
from types import CodeType, FunctionType
from typing import Literal, NamedTuple, get_args

Code = Literal[
    "body_timeout",
    "body_too_large",
    "client_gone",
    "conflict",
    "constraint_not_compiled",
    "context_length_exceeded",
    "engine_died",
    "engine_error",
    "engine_timeout",
    "host_not_allowed",
    "internal_error",
    "invalid_api_key",
    "invalid_content_encoding",
    "invalid_content_type",
    "invalid_json",
    "invalid_type",
    "invalid_value",
    "message_dropped",
    "method_not_allowed",
    "missing",
    "model_not_found",
    "not_ready",
    "out_of_range",
    "path_not_found",
    "queue_full",
    "queue_timeout",
    "request_not_found",
    "strategy_failed",
    "too_long",
    "too_many_connections",
    "unknown_field",
    "unknown_name",
    "unknown_token_id",
    "unsatisfiable",
    "unsupported",
]
"""Why something is refused: machine-readable, the same in Python, in HTTP bodies and in the output of batches."""
STATUS: dict[Code, int] = {
    **dict.fromkeys(get_args(Code), 400),
    "invalid_api_key": 401,
    "host_not_allowed": 403,
    **dict.fromkeys(("model_not_found", "path_not_found", "request_not_found"), 404),
    "method_not_allowed": 405,
    "body_timeout": 408,
    "body_too_large": 413,
    **dict.fromkeys(("queue_full", "queue_timeout"), 429),
    "client_gone": 499,
    **dict.fromkeys(("engine_error", "internal_error"), 500),
    **dict.fromkeys(("constraint_not_compiled", "engine_died", "engine_timeout", "not_ready", "too_many_connections"), 503),
}
"""The HTTP status of each code."""


class Refusal(NamedTuple):
    """Why an input cannot be used. `str` returns the field and the message."""

    field: str
    """Name of the field in Python, dotted where nested; empty if the refusal is about no single field."""
    code: Code
    """The kind of problem."""
    message: str
    """What was given, what is allowed, and what to do, without the name of the field."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Refused(ValueError):
    """The exception that carries a refusal.

    Args:
        field: As in `Refusal`, which has the same three fields.
        code: The kind of problem.
        message: What was given, what is allowed, and what to do.
    """

    def __init__(self, field: str, code: Code, message: str) -> None:
        super().__init__(field, code, message)
        self.refusal = Refusal(field, code, message)

    def __str__(self) -> str:
        return str(self.refusal)


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
    frames = _user_frames(error)
    if not frames:
        return raised
    return f"{frames[0][0].co_qualname} raised {raised}{_innermost(frames)}"


def of_import(error: BaseException) -> str:
    """Return a line with the exception that a user's module raised, and the innermost frame of user code."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{type(error).__name__}: {error.msg} ({_place(error.filename, error.lineno)}: {(error.text or '').strip()})"
    return _one_line(error) + _innermost(_user_frames(error))


def user_place(error: BaseException) -> str:
    """Return file and line of the innermost frame of user code outside libraries; empty if there is none."""
    return _innermost([frame for frame in _user_frames(error) if not frame[0].co_filename.startswith(LIBRARIES)])


def _innermost(frames: list[tuple[CodeType, int]]) -> str:
    """Return file and line of the innermost frame of user code. Frames of libraries count only if there is no other."""
    files = [(code.co_filename, line) for code, line in frames]
    own = [place for place in files if not place[0].startswith(LIBRARIES)]
    return f" ({_place(*(own or files)[-1])})" if files else ""


def _one_line(error: BaseException) -> str:
    return " ".join("".join(format_exception_only(error)).split())[:LONGEST]


def _user_frames(error: BaseException) -> list[tuple[CodeType, int]]:
    """Return the code and the line of each frame of user code, outermost first."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    return [(code, line) for code, line in frames if not code.co_filename.startswith(NOT_USER_CODE)]


def defined(owner: type, hook: str) -> str:
    """Return file and line of a method or property for a message; empty if `hook` is neither."""
    method = next((vars(cls)[hook] for cls in owner.__mro__ if hook in vars(cls)), None)
    method = method.fget if isinstance(method, property) else method
    code = method.__code__ if isinstance(method, FunctionType) else None
    return f" ({_place(code.co_filename, code.co_firstlineno)})" if code is not None else ""


def _place(filename: str, line: int) -> str:
    return f"{Path(filename).name}:{line}"
