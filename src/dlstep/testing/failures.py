"""Descriptions of failed laws: the failure, the user's frames and the case."""

import re
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import hypothesis

from ..core import RequestFault
from ..core.faults import LONGEST, PACKAGE, UserCodeTimeout
from .generators import PIECES, Case

OURS = (PACKAGE, str(Path(hypothesis.__file__).parent), "<")  # "<": code that dataclasses generate
LIBRARY = sysconfig.get_path("stdlib")
MOST_FRAMES = 6
DUMPED = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and the exceptions that led to it, the last one first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def timed_out(error: BaseException) -> bool:
    """Return whether an exception comes from the time limit of a case."""
    return any(isinstance(cause, UserCodeTimeout) for cause in chain(error))


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the user frames, outermost first, of the first exception of the chain with any."""
    for cause in chain(error):
        frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if not frame.filename.startswith(OURS)]
        if any(not frame.filename.startswith(LIBRARY) for frame in frames):
            return frames
    return []


def description(error: BaseException, seconds: float) -> str:
    """Return a sentence about the failure, then the frames of user code as Python prints them.

    `error` is the exception from a law, `seconds` the time limit of a case.
    """
    frames = user_frames(error)
    hook = _hook(error)
    if timed_out(error):
        what = f"{hook or 'the case'} was still running after {seconds:g} s, the time limit of a case (--case_timeout)"
    elif isinstance(error, RequestFault):
        what = str(error)
    elif frames:
        what = f"{hook} raised {_one_line(error)}"
    elif isinstance(error, AssertionError):
        what = str(error) or _expression(error)
    elif isinstance(error, SyntaxError):
        what = f"{error.msg} ({Path(error.filename or '').name}:{error.lineno})"
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"raised {_one_line(error)} ({Path(last.filename).name}:{last.lineno})"
    return "\n".join([what, *printed_frames(error)])


def printed_frames(error: BaseException) -> list[str]:
    """Return the innermost user frames as Python prints them."""
    return _printed(user_frames(error)[-MOST_FRAMES:])


def dumped_frames(dump: str) -> str:
    """Return the user frames of a `faulthandler` dump; empty if there are none."""
    frames = [traceback.FrameSummary(file, int(line), name) for file, line, name in DUMPED.findall(dump)]
    own = [frame for frame in frames if not frame.filename.startswith((*OURS, LIBRARY))]
    return "\n".join(_printed(own[:MOST_FRAMES][::-1]))


def shown(value: Any) -> str:
    """Return the repr of a value without fields that have their default."""
    if value is PIECES:
        return "..."
    if isinstance(value, tuple):
        parts = ", ".join(map(shown, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return f"({parts},)" if len(value) == 1 else f"({parts})"  # pyright: ignore[reportUnknownArgumentType]
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    return f"{type(value).__name__}({', '.join(_fields_shown(value))})"


def case_shown(drawn: list[Any]) -> str:
    """Return the drawn values, one value or one field of a `Case` per line, strategies first."""
    lines = [line for value in drawn for line in (_fields_shown(value) if isinstance(value, Case) else [shown(value)])]
    return "\n".join(f"  {line}" for line in sorted(lines, key=lambda line: not line.startswith("strategy=")))


def _fields_shown(value: Any) -> list[str]:
    parts: list[str] = []
    for field in fields(value):
        if field.init and field.repr:
            own = attrgetter(field.name)(value)
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            if type(own) is not type(default) or own != default:
                parts.append(f"{field.name}={shown(own)}")
    return parts


def _hook(error: BaseException) -> str:
    """Return the qualified name of the outermost user function, such as `MyRule.chosen`."""
    for cause in chain(error):
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            if not frame.f_code.co_filename.startswith((*OURS, LIBRARY)):
                return "its code" if frame.f_code.co_name == "<module>" else frame.f_code.co_qualname
    return ""


def _one_line(error: BaseException) -> str:
    return " ".join("".join(traceback.format_exception_only(error)).split())[:LONGEST]


def _expression(error: AssertionError) -> str:
    """Return the condition of an assertion without a message, from its source line."""
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    return f"not true: {line.removeprefix('assert ')}" if line.startswith("assert ") else "an assertion of the law failed"


def _printed(frames: list[traceback.FrameSummary]) -> list[str]:
    """Return frames as Python prints them, with file names relative to the current folder."""
    plain = [traceback.FrameSummary(_relative(frame.filename), frame.lineno, frame.name) for frame in frames]
    return "".join(traceback.StackSummary.from_list(plain).format()).splitlines()


def _relative(filename: str) -> str:
    path, here = Path(filename), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else filename
