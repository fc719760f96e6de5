"""Trials of the laws on user code, in worker processes with time limits, for `dlstep laws`.

User code may never return, catch every exception, print or exit. At the time limit of a case,
`faulthandler` writes the stack to a file and ends the process, wherever the code is: in a loop, in
`time.sleep` or inside C. The values drawn for the case are in a second file by then. The next law
gets a new process; laws share one as long as none ends it, because a start takes half a second.
"""

import faulthandler
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from io import StringIO
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, cast

import hypothesis
from hypothesis import HealthCheck, Phase, given, seed as seeded, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky, StopTest, UnsatisfiedAssumption
from hypothesis.strategies import DataObject, SearchStrategy, data as any_data

from .. import rules, strategies
from ..core import DlstepError, Options, RequestFault, Rule, Spec, Strategy, options_of
from ..core.errors import PACKAGE, described
from ..core.options import ImportFailed
from ..processes import Worker, WorkerDied
from .generators import PIECES, Case, open_fields
from .laws import LAWS, Law, progress

CARRIERS = ("multi_bd", "dual_cache")
# Without `progress`, other laws may never end: try it first, and stop if it fails.
KNOWN: dict[str, Law] = {law.__name__: law for law in sorted(LAWS, key=lambda law: law is not progress)}
SHRINK_SECONDS = 10.0  # to look for a smaller case once one has failed
SILENT_SECONDS = 60.0  # grace beyond the time limits, also for imports: a worker silent for longer counts as stopped
PRINTED = 1000  # maximum number of characters kept of a failing case's output
STACK, CASE = "stack", "case"  # files that show what a process was doing when it ended
OURS = (PACKAGE, str(Path(hypothesis.__file__).parent), "<")  # "<": code that dataclasses generate
LIBRARY = sysconfig.get_path("stdlib")
MOST_FRAMES = 6
DUMPED = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Random cases per law and their seed, and the seconds that a case and a law may take."""

    examples: int
    seed: int
    case_timeout: float
    law_timeout: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a law, which holds if `failure` is empty. `last`: the other laws would fail in the same way."""

    cases: int
    failure: str = ""
    out_of_time: bool = False
    last: bool = False


class Trials:
    """Trials of a strategy, or of a rule in each strategy that fits it, in a worker process."""

    def __init__(self, name: str, limits: TrialLimits) -> None:
        self._name, self._limits, self._folder = name, limits, TemporaryDirectory()
        self._worker: Worker | None = None

    def close(self) -> None:
        """End the process."""
        self._end()
        self._folder.cleanup()

    def opened(self) -> list[tuple[str, list[str]]]:
        """Start the process. Return the title and the warnings of each subject.

        Raises ValueError if there are none; the further lines of its message are the frames of user code.
        """
        self._worker = Worker(serve, self._name, self._limits, self._folder.name, name="the process")
        try:
            opened = self._worker.receive(self._limits.case_timeout + SILENT_SECONDS)
        except WorkerDied as died:
            opened = f"{self._name} cannot be loaded: {self._ending(died)}"
        if isinstance(opened, str):
            raise ValueError(opened)
        return opened

    def verdict(self, subject: int, law: str) -> Verdict:
        """Try a law, in a new process if user code ended the last one."""
        if self._worker is None:
            self.opened()
        assert self._worker is not None, "it was just started"
        try:
            with suppress(OSError):  # a process that has ended: `receive` says how
                self._worker.connection.send((subject, law))
            return self._worker.receive(self._limits.law_timeout + self._limits.case_timeout + SILENT_SECONDS)
        except WorkerDied as died:
            self._end()
            return Verdict(0, self._ending(died), last=KNOWN[law] is progress)

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.end()
            self._worker = None

    def _ending(self, died: WorkerDied) -> str:
        """Return why the process ended, the frames of user code and the case."""
        stack, case = (Path(self._folder.name, name).read_text("utf-8", errors="replace") for name in (STACK, CASE))
        dumped = [traceback.FrameSummary(file, int(line), name) for file, line, name in reversed(DUMPED.findall(stack))]
        frames, reason = [each for each in dumped if not each.filename.startswith((*OURS, LIBRARY))], str(died)
        if "Timeout (" in stack:
            what, limit = frames[0].name if frames else "the case", self._limits.case_timeout
            reason = f"{what} was still running after {limit:g} s, the time limit of a case (--case_timeout)"
        return "\n".join(filter(None, (reason, printed(frames), f"Case:\n{case}" if case else "")))


def serve(connection: Connection, name: str, limits: TrialLimits, folder: str) -> None:
    """Load a strategy or rule, send its subjects or why there are none, then answer each subject and law with a verdict.

    This is the target of the worker process; the files `STACK` and `CASE` go to `folder`.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what user code writes past sys.stdout
    set_hypothesis_home_dir(folder)  # no .hypothesis folder in the current one
    bench = TrialBench(limits, folder)
    found = bench.loaded(name)
    connection.send(found if isinstance(found, str) else [(title, list(warnings(value))) for title, value in found])
    while not isinstance(found, str):
        subject, law = connection.recv()
        connection.send(verdict(KNOWN[law], found[subject][1], bench))


class TrialBench:
    """The limits of trials, the files in `folder` that outlive the process, and what user code printed."""

    def __init__(self, limits: TrialLimits, folder: str) -> None:
        self.limits, self._case, self._output = limits, Path(folder, CASE), StringIO()
        self._stack = Path(folder, STACK).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process runs
        self.note("")
        faulthandler.enable(self._stack)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep what user code prints. If the block exceeds the time of a case, write the stack and end the process."""
        self._output = StringIO()
        faulthandler.dump_traceback_later(self.limits.case_timeout, exit=True, file=self._stack)
        try:
            with redirect_stdout(self._output), redirect_stderr(self._output):
                yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def report(self, error: BaseException, case: str) -> str:
        """Return what a failing case raised, its values and the end of what it printed."""
        output = self._output.getvalue()[-PRINTED:].rstrip("\n")
        parts = [description(error), f"Case:\n{case}" if case else "", f"It printed:\n{output}" if output else ""]
        return "\n".join(filter(None, parts))

    def note(self, case: str) -> None:
        """Write a case to its file."""
        self._case.write_text(case, encoding="utf-8")

    def loaded(self, name: str) -> list[tuple[str, Strategy]] | str:
        """Return the subjects of a name or a file; a reason and the frames of user code if there are none."""
        try:
            with self.running():
                return subjects(name)
        except ImportFailed as error:
            return "\n".join(filter(None, (str(error), printed(user_frames(error)))))
        except BaseException as error:  # noqa: BLE001 - the user's module may raise anything
            own = isinstance(error, (ValueError, DlstepError)) and not user_frames(error)
            return str(error) if own else f"{name} cannot be loaded: {description(error)}"


def subjects(name: str) -> list[tuple[str, Strategy]]:
    """Return the strategy of this name, or the rule in each strategy that fits, with titles.

    Raises ValueError for an unknown name.
    """
    try:
        return [(name, strategies.PLUGINS.value(name))]
    except ValueError as error:
        no_strategy = error
    try:
        rule = rules.PLUGINS.value(name)
    except ValueError as error:
        if "is unknown" not in str(error):
            raise error if "RULE" in str(no_strategy) else no_strategy from None
        known = f"strategies are {', '.join(strategies.PLUGINS.available())}; rules are {', '.join(rules.PLUGINS.available())}"
        raise ValueError(f"no strategy, rule, .py file or module is called {name!r}: {known}") from None
    found = [(f"{name} on {carrier}", carried(carrier, rule)) for carrier in CARRIERS]
    spec = Spec(mask_id=0, eos_ids=(1,), vocab_size=50)
    able = [(title, value) for title, value in found if not value.incompatibility(spec)]
    if not able:
        raise ValueError(f"rule {name} fits none of {', '.join(CARRIERS)}: {found[0][1].incompatibility(spec)}")
    return able


def carried(carrier: str, rule: Rule) -> Strategy:
    """Return a strategy with this rule."""
    base = strategies.PLUGINS.value(carrier)
    equal = {"cache": "none"} if "cache" in options_of(base) else {}
    return replace(base, rule=rule, **equal)  # pyright: ignore[reportCallIssue]


class _Stop(BaseException):
    """An exception that ends a law whose time is up; Hypothesis lets it through."""


class _Recorded:
    """A wrapper of Hypothesis' `data` that notes the drawn values, one value or one field of a `Case` per line."""

    def __init__(self, data: DataObject, bench: TrialBench) -> None:
        self._data, self._bench, self._drawn = data, bench, list[Any]()
        self.case = ""

    def draw(self, strategy: SearchStrategy[Any], label: Any = None) -> Any:
        """Draw a value."""
        value = self._data.draw(strategy, label)
        self._drawn.append(value)
        parts = [_fields_shown(each) if isinstance(each, Case) else [shown(each)] for each in self._drawn]
        lines = sorted(chain.from_iterable(parts), key=lambda line: not line.startswith("strategy="))
        self.case = "\n".join(f"  {line}" for line in lines)
        self._bench.note(self.case)
        return value


def verdict(law: Law, value: Strategy, bench: TrialBench) -> Verdict:
    """Try random cases of a law until one fails, all hold or the time is up."""
    limits, end = bench.limits, monotonic() + bench.limits.law_timeout
    held, failure, stopped = 0, "", False

    def case(data: DataObject) -> None:
        nonlocal end, held, failure, stopped
        if monotonic() > end:
            stopped = True
            raise _Stop
        recorded = _Recorded(data, bench)
        try:
            with bench.running():
                law(value, cast("DataObject", recorded))
        except (StopTest, UnsatisfiedAssumption):
            raise  # Hypothesis' own
        except BaseException as error:
            if not failure:
                end = min(end, monotonic() + SHRINK_SECONDS)
            # Hypothesis tries only smaller cases than the last that failed, so the last one is the smallest.
            failure = bench.report(error, recorded.case)
            raise
        held += not failure

    trial = settings(
        max_examples=limits.examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
    )(given(data=any_data())(case))
    try:
        seeded(limits.seed)(trial)()
    except BaseException as error:  # noqa: BLE001 - user code may raise anything, and a failed law is no error here
        if stopped and not held and not failure:
            failure = f"no case was finished within {limits.law_timeout:g} s (--law_timeout)"
        elif not stopped and not failure:  # no case could be drawn
            return Verdict(held, description(error), last=True)
        elif not stopped and isinstance(error, Flaky):
            failure += "\nThe same case held when it ran again: a strategy or a rule must be pure."
    return Verdict(held, failure, stopped and not failure, bool(failure) and law is progress)


def user_frames(error: BaseException | None) -> list[traceback.FrameSummary]:
    """Return the user frames, outermost first, of the first exception in a chain that has any."""
    while error is not None:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(OURS)]
        if any(not frame.filename.startswith(LIBRARY) for frame in frames):
            return frames
        error = error.__cause__ or error.__context__
    return []


def printed(frames: list[traceback.FrameSummary]) -> str:
    """Return the innermost frames as Python prints them, with file names relative to the current folder."""
    text = "".join(traceback.StackSummary.from_list(frames[-MOST_FRAMES:]).format())
    return text.rstrip("\n").replace(f'File "{Path.cwd()}{os.sep}', 'File "')


def description(error: BaseException) -> str:
    """Return a sentence about the failure of a law, then the frames of user code."""
    frames = user_frames(error)
    if isinstance(error, AssertionError) and not frames:
        sentence = str(error) or f"not true: {traceback.extract_tb(error.__traceback__)[-1].line}"
    elif frames and not isinstance(error, RequestFault):
        sentence = f"{frames[0].name} raised {traceback.format_exception_only(error)[0].strip()}"
    else:
        sentence = described(error) if not isinstance(error, RequestFault) else str(error)
    return "\n".join(filter(None, (sentence, printed(frames))))


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
            own = getattr(value, field.name)
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            if type(own) is not type(default) or own != default:
                parts.append(f"{field.name}={shown(own)}")
    return parts


def warnings(value: Options) -> Iterator[str]:
    """Yield a warning for each number without both bounds in user-defined classes: a strategy or rule, and its inner rules."""
    cls = type(value)
    if not cls.__module__.startswith("dlstep."):
        for name, kind, low, high in open_fields(value):
            bounded = f"{name}: Annotated[{kind.__name__}, Interval(ge={low}, le={high})]"
            yield (
                f"{cls.__name__}.{name} has no lower or no upper bound, so a request may set it to any number. The laws try "
                f"{low} to {high} only. Write both bounds, for example {bounded}."
            )
    for field in fields(value):
        if isinstance(held := getattr(value, field.name), Options):
            yield from warnings(held)
