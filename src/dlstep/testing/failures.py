"""The report of `dlstep laws` on user code: frames, the failing case, and warnings with their remedies."""

import inspect
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import hypothesis

from ..core import Options, RequestFault
from ..core.faults import PACKAGE, described
from .generators import PIECES, Case, open_fields

OURS = (PACKAGE, str(Path(hypothesis.__file__).parent), "<")  # "<": code that dataclasses generate
LIBRARY = sysconfig.get_path("stdlib")
MOST_FRAMES = 6
DUMPED = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
# Fields of `SpanSamples` that are empty unless requested: the `SampleSpec` to use, and a test.
ON_REQUEST: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "entropies": ('SampleSpec(statistics=frozenset({"entropy"}))', lambda spec: "entropy" in spec.statistics),
    "margins": ('SampleSpec(statistics=frozenset({"margin"}))', lambda spec: "margin" in spec.statistics),
    "noise": ('SampleSpec(statistics=frozenset({"noise"}))', lambda spec: "noise" in spec.statistics),
    "best_ids": ("SampleSpec(best=4)", lambda spec: spec.best > 0),
    "best_probabilities": ("SampleSpec(best=4)", lambda spec: spec.best > 0),
    "scored_probabilities": ("SampleSpec(scored=1), and return the ids from `scored_ids`", lambda spec: spec.scored > 0),
}


def user_frames(error: BaseException | None) -> list[traceback.FrameSummary]:
    """Return the user frames, outermost first, of the first exception in a chain that has any."""
    while error is not None:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(OURS)]
        if any(not frame.filename.startswith(LIBRARY) for frame in frames):
            return frames
        error = error.__cause__ or error.__context__
    return []


def dumped_frames(dump: str) -> list[traceback.FrameSummary]:
    """Return the user frames, outermost first, of a `faulthandler` dump."""
    frames = [traceback.FrameSummary(file, int(line), name) for file, line, name in reversed(DUMPED.findall(dump))]
    return [frame for frame in frames if not frame.filename.startswith((*OURS, LIBRARY))]


def printed(frames: list[traceback.FrameSummary]) -> str:
    """Return the innermost frames as Python prints them, with file names relative to the current folder."""
    innermost = [traceback.FrameSummary(_relative(frame.filename), frame.lineno, frame.name) for frame in frames[-MOST_FRAMES:]]
    return "".join(traceback.StackSummary.from_list(innermost).format()).rstrip("\n")


def _relative(filename: str) -> str:
    path, here = Path(filename), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else filename


def description(error: BaseException) -> str:
    """Return a sentence about the failure of a law, then the frames of user code."""
    frames = user_frames(error)
    if isinstance(error, RequestFault) or (isinstance(error, AssertionError) and not frames and str(error)):
        sentence = str(error)
    elif isinstance(error, AssertionError) and not frames:
        sentence = f"not true: {traceback.extract_tb(error.__traceback__)[-1].line}"
    elif frames:
        sentence = f"{frames[0].name} raised {traceback.format_exception_only(error)[0].strip()}"
    else:
        sentence = described(error)
    return "\n".join(filter(None, (sentence, printed(frames))))


def case_shown(drawn: list[Any]) -> str:
    """Return the drawn values, one value or one field of a `Case` per line, strategies first."""
    lines = [line for value in drawn for line in (_fields_shown(value) if isinstance(value, Case) else [shown(value)])]
    return "\n".join(f"  {line}" for line in sorted(lines, key=lambda line: not line.startswith("strategy=")))


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


def _fields_shown(value: Any) -> list[str]:
    parts: list[str] = []
    for field in fields(value):
        if field.init and field.repr:
            own = attrgetter(field.name)(value)
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            if type(own) is not type(default) or own != default:
                parts.append(f"{field.name}={shown(own)}")
    return parts


def user_classes(value: Options) -> Iterator[Options]:
    """Yield a strategy or rule and its inner rules, except those of this package."""
    if not value.SHIPPED:
        yield value
    for part in map(attrgetter, value.__dataclass_fields__):
        if isinstance(held := part(value), Options):
            yield from user_classes(held)


def open_field_warnings(value: Options) -> Iterator[str]:
    """Yield a warning for each numeric field of a user's class without upper or lower bound."""
    for owner in user_classes(value):
        cls = type(owner)
        for name, kind, low, high in open_fields(owner):
            remedy = f"Annotated[{kind.__name__}, Interval(ge={low}, le={high})]"
            yield (
                f"{cls.__name__}.{name} ({_declared(cls, name)}) has no lower or no upper bound, so a request may set it to "
                f"any number. The laws try {low} to {high} only. Write both bounds, for example {name}: {remedy}."
            )


def _declared(cls: type, name: str) -> str:
    """Return file and line of a field's declaration."""
    owner = next(owner for owner in cls.__mro__ if name in vars(owner).get("__annotations__", {}))
    lines, first = inspect.getsourcelines(owner)
    number = next(number for number, line in enumerate(lines, first) if re.match(rf"\s+{name}\s*:", line))
    return f"{Path(inspect.getfile(owner)).name}:{number}"


def unrequested_reads(value: Options) -> dict[str, str]:
    """Return a warning for each field in `ON_REQUEST` that the files of user classes read from `rows`.

    Skips files whose `sample_spec` depends on options, which may match the fields that they read.
    """
    warnings: dict[str, str] = {}
    for owner in user_classes(value):
        spec = inspect.getattr_static(owner, "sample_spec")
        if isinstance(spec, property) and spec.fget and "self." in inspect.getsource(spec.fget):
            continue
        own, file = type(owner).__name__, Path(inspect.getfile(type(owner)))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for name in re.findall(r"\brows\.(\w+)", line.partition("#")[0]):
                if name in ON_REQUEST:
                    remedy = f"define the property `sample_spec` in {own} and return {ON_REQUEST[name][0]}"
                    place = f"{file.name}:{number}"
                    sentence = f"{place} reads rows.{name}, which is empty because {own} does not request it: {remedy}."
                    warnings.setdefault(name, sentence)
    return warnings
