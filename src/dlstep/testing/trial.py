"""Trials of the laws on user code, in a worker process with time limits, for `dlstep laws`.

User code may never return, catch every exception, print or exit. At the time limit of a case,
`faulthandler` writes the stack to a file and ends the process, wherever the code is: in a loop, in
`time.sleep` or inside C. The values drawn for the case are in a second file by then.
"""

import faulthandler
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, TextIO, cast

from hypothesis import HealthCheck, Phase, given, seed as seeded, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky, StopTest, UnsatisfiedAssumption
from hypothesis.strategies import DataObject, SearchStrategy, data as any_data

from .. import rules, strategies
from ..core import DlstepError, Rule, SampleSpec, Spec, Strategy, options_of
from ..core.plugins import ImportFailed
from .failures import (
    ON_REQUEST,
    case_shown,
    description,
    dumped_frames,
    open_field_warnings,
    printed,
    unrequested_reads,
    user_frames,
)
from .generators import Case
from .laws import LAWS, Law, progress

CARRIERS = ("multi_bd", "dual_cache")
# Without `progress`, other laws may never end: try it first, and stop if it fails.
KNOWN: dict[str, Law] = {law.__name__: law for law in sorted(LAWS, key=lambda law: law is not progress)}
PRINTED = 1000  # maximum number of characters kept of a failing case's output
STACK, CASE = "stack", "case"  # files that show what a killed process was doing


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Limits of a trial.

    Attributes:
        examples: Random cases per law.
        seed: Seed of the cases.
        case_timeout: Seconds per case.
        shrink_timeout: Seconds to search for a smaller failing case.
        law_timeout: Seconds per law; the law then counts as tried on the finished cases.
    """

    examples: int
    seed: int
    case_timeout: float
    shrink_timeout: float
    law_timeout: float


@dataclass(frozen=True, slots=True)
class Opened:
    """A message before the laws of `subject`."""

    subject: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LawVerdict:
    """The verdict on a law, which holds if `failure` is empty. `last`: of its subject; `died`: the process has ended."""

    cases: int
    failure: str
    out_of_time: bool = False
    last: bool = False
    died: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialRefused:
    """The only message if the file or name cannot be tried."""

    reason: str


def serve(connection: Connection, name: str, laws: list[str], limits: TrialLimits, folder: str) -> None:
    """Try laws on a strategy or rule and send messages, the last of them None.

    This is the target of the worker process; the files `STACK` and `CASE` go to `folder`.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what user code writes past sys.stdout
    set_hypothesis_home_dir(folder)  # no .hypothesis folder in the current one
    with Path(folder, STACK).open("w", encoding="utf-8") as stack, Path(folder, CASE).open("w", encoding="utf-8") as case:
        faulthandler.enable(stack)
        for message in tried(name, laws, limits, stack, case):
            connection.send(message)
        connection.send(None)


def tried(
    name: str, laws: list[str], limits: TrialLimits, stack: TextIO, case: TextIO
) -> Iterator[Opened | LawVerdict | TrialRefused]:
    """Try laws on a strategy or rule, and yield messages. What user code prints until the last one is kept for its case."""
    output = StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        yield from _tried(name, laws, limits, stack, case, output)


def _tried(
    name: str, laws: list[str], limits: TrialLimits, stack: TextIO, case: TextIO, output: StringIO
) -> Iterator[Opened | LawVerdict | TrialRefused]:
    try:
        with time_limit(limits.case_timeout, stack):
            found = subjects(name)
            opened = [Opened(title, tuple(open_field_warnings(value))) for title, value in found]
    except ImportFailed as error:
        yield TrialRefused("\n".join(filter(None, (str(error), printed(user_frames(error))))))
        return
    except BaseException as error:  # noqa: BLE001 - the user's module may raise anything
        own = isinstance(error, (ValueError, DlstepError)) and not user_frames(error)
        yield TrialRefused(str(error) if own else f"{name} cannot be loaded: {description(error)}")
        return
    for message, (_, value) in zip(opened, found, strict=True):
        yield message
        reads = unrequested_reads(value)
        for law in laws:
            trial = Trial(KNOWN[law], value, limits, output, stack, case)
            verdict = trial.verdict()
            if trial.sample_specs:
                empty = [field for field in reads if not any(ON_REQUEST[field][1](spec) for spec in trial.sample_specs)]
                verdict = replace(verdict, warnings=tuple(reads[field] for field in empty))
                reads = {}
            yield verdict
            if verdict.last:
                break


def ended(reason: str, limits: TrialLimits, folder: Path, loading: str) -> LawVerdict | TrialRefused:
    """Return the last message of a process that ended for a `reason`, while `loading` a file or in a case."""
    stack, case = ((folder / name).read_text(encoding="utf-8", errors="replace") for name in (STACK, CASE))
    frames = dumped_frames(stack)
    if "Timeout (" in stack:
        what = frames[0].name if frames else "the case"
        reason = f"{what} was still running after {limits.case_timeout:g} s, the time limit of a case (--case_timeout)"
    reason = "\n".join(filter(None, (reason, printed(frames), f"Case:\n{case}" if case else "")))
    return TrialRefused(f"{loading} cannot be loaded: {reason}") if loading else LawVerdict(0, reason, last=True, died=True)


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


@contextmanager
def time_limit(seconds: float, stack: TextIO) -> Iterator[None]:
    """Write the stack to a file and end the process if the block takes longer than `seconds`."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=stack)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def empty(file: TextIO) -> None:
    """Remove what a file contains."""
    file.seek(0)
    file.truncate()


class _Stop(BaseException):
    """An exception that ends a law whose time is up; Hypothesis lets it through."""


class _Recorded:
    """A wrapper of Hypothesis' `data` that records drawn values, also in a file, and sample specifications."""

    def __init__(self, data: DataObject, sample_specs: set[SampleSpec], file: TextIO) -> None:
        self._data, self._sample_specs, self._file = data, sample_specs, file
        self.drawn: list[Any] = []

    def draw(self, strategy: SearchStrategy[Any], label: Any = None) -> Any:
        """Draw a value."""
        value = self._data.draw(strategy, label)
        self.drawn.append(value)
        of_case = value.strategy if isinstance(value, Case) else value
        if isinstance(of_case, Strategy):
            self._sample_specs.add(of_case.sample_spec)
        empty(self._file)
        self._file.write(case_shown(self.drawn))
        self._file.flush()
        return value


class Trial:
    """One law, tried on random cases until a case fails, all hold or the time is up."""

    def __init__(self, law: Law, value: Strategy, limits: TrialLimits, output: StringIO, stack: TextIO, case: TextIO) -> None:
        self._law, self._value, self._limits, self._output, self._stack, self._file = law, value, limits, output, stack, case
        self._held = 0  # cases that held
        self._end = monotonic() + limits.law_timeout
        self._failure: tuple[int, str] | None = None  # length and text of the smallest failing case
        self._stopped = False
        self.sample_specs: set[SampleSpec] = set()  # of the strategies that were drawn

    def verdict(self) -> LawVerdict:
        """Return the outcome of the law."""
        trial = settings(
            max_examples=self._limits.examples,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
        )(given(data=any_data())(self._case))
        error: BaseException | None = None
        try:
            seeded(self._limits.seed)(trial)()
        except BaseException as raised:  # noqa: BLE001 - user code may raise anything, and a failed law is no error here
            error = raised
        if self._failure is not None:
            flaky = isinstance(error, Flaky) and not self._stopped
            impure = "\nThe same case held when it ran again: a strategy or a rule must be pure." if flaky else ""
            return LawVerdict(self._held, self._failure[1] + impure, last=self._law is progress)
        if self._stopped and not self._held:
            return LawVerdict(0, f"no case was finished within {self._limits.law_timeout:g} s (--law_timeout)")
        if error is None or self._stopped:
            return LawVerdict(self._held, "", out_of_time=self._stopped)
        return LawVerdict(self._held, description(error), last=True)

    def _case(self, data: DataObject) -> None:
        """Try one case; re-raise for Hypothesis."""
        if monotonic() > self._end:
            self._stopped = True
            raise _Stop
        empty(self._output)
        recorded = _Recorded(data, self.sample_specs, self._file)
        try:
            with time_limit(self._limits.case_timeout, self._stack):
                self._law(self._value, cast("DataObject", recorded))
        except (StopTest, UnsatisfiedAssumption):
            raise  # Hypothesis' own
        except BaseException as error:
            self._fail(error, recorded.drawn)
            raise
        self._held += self._failure is None

    def _fail(self, error: BaseException, drawn: list[Any]) -> None:
        """Keep the smallest failing case. The first failure starts the time limit for shrinking."""
        if self._failure is None:
            self._end = monotonic() + self._limits.shrink_timeout
        case = case_shown(drawn)
        if self._failure is None or len(case) < self._failure[0]:
            output = self._output.getvalue()[-PRINTED:].rstrip("\n")
            parts = [description(error), f"Case:\n{case}" if case else "", f"It printed:\n{output}" if output else ""]
            self._failure = len(case), "\n".join(filter(None, parts))
