"""Trials of the laws on user code, in a worker process with time limits, for `dlstep laws`.

User code may never return, catch every exception, print or exit. SIGALRM interrupts a case at its
time limit, also in `time.sleep`. Code that ignores the interrupt, or stays inside C, ends at twice
the limit: `faulthandler` then writes the stack to a file and ends the process.
"""

import faulthandler
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import TextIOBase
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
from ..core.faults import UserCodeTimeout
from ..core.plugins import ImportFailed
from .advice import ON_REQUEST, open_field_warnings, unrequested_reads
from .failures import case_shown, description, printed_frames, timed_out, user_frames
from .generators import Case
from .laws import LAWS, Law, progress

CARRIERS = ("multi_bd", "dual_cache")
# Without `progress`, other laws may never end: try it first, and stop if it fails.
KNOWN: dict[str, Law] = {law.__name__: law for law in sorted(LAWS, key=lambda law: law is not progress)}
REPORT_SECONDS = 0.1  # minimum time between two counts
PRINTED = 1000  # maximum number of characters kept of a failing case's output


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
class Began:
    """A message before the cases of `law`."""

    law: str
    summary: str


@dataclass(frozen=True, slots=True)
class Counted:
    """A message with the number of cases that held or, if `shrinking`, of smaller cases tried."""

    cases: int
    shrinking: bool


@dataclass(frozen=True, slots=True)
class LawVerdict:
    """The verdict on a law, which holds if `failure` is empty; `last` ends its subject."""

    cases: int
    failure: str
    out_of_time: bool = False
    last: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialRefused:
    """The last message if the file or name cannot be tried."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The last message, after the verdicts on all laws."""


def serve(connection: Connection, name: str, only: list[str], limits: TrialLimits, dump: str) -> None:
    """Try the laws `only` on a strategy or rule and send messages. The last is TrialRefused or Finished.

    This is the target of the worker process; `dump` is the file for a stack from `faulthandler`.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what user code writes past sys.stdout
    set_hypothesis_home_dir(Path(dump).parent)  # no .hypothesis folder in the current one
    with open(dump, "w", encoding="utf-8") as file:
        faulthandler.enable(file)
        connection.send(tried(name, only, limits, connection.send, file))


def tried(
    name: str, only: list[str], limits: TrialLimits, send: Callable[[object], None], dump: TextIO
) -> TrialRefused | Finished:
    """Try laws in the main thread and pass messages to `send`; return the last message."""
    output = OutputTail()
    try:
        with output.captured(), time_limit(limits.case_timeout, dump):
            found = subjects(name)
            opened = [Opened(title, tuple(open_field_warnings(value))) for title, value in found]
    except ImportFailed as error:
        return TrialRefused("\n".join((str(error), *printed_frames(error))))
    except BaseException as error:  # noqa: BLE001 - the user's module may raise anything
        if isinstance(error, (ValueError, DlstepError)) and not user_frames(error):
            return TrialRefused(str(error))
        return TrialRefused(f"{name} cannot be loaded: {description(error, limits.case_timeout)}")
    for message, (_, value) in zip(opened, found, strict=True):
        send(message)
        reads = unrequested_reads(value)
        for law in only:
            send(Began(law, (inspect.getdoc(KNOWN[law]) or "").splitlines()[0]))
            trial = Trial(KNOWN[law], value, limits, send, output, dump)
            verdict = trial.verdict()
            missing = [
                sentence for field, sentence in reads if not any(ON_REQUEST[field][1](spec) for spec in trial.sample_specs)
            ]
            verdict = replace(verdict, warnings=tuple(missing)) if trial.sample_specs else verdict
            send(verdict)
            reads = [] if trial.sample_specs else reads
            if verdict.last:
                break
    return Finished()


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


class OutputTail(TextIOBase):
    """A text stream that keeps the end of what was written since it was emptied."""

    def __init__(self) -> None:
        super().__init__()
        self.tail = ""

    def write(self, text: str, /) -> int:
        """Keep the end of the text."""
        self.tail = (self.tail + text)[-PRINTED:]
        return len(text)

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Empty the stream and redirect stdout and stderr to it."""
        self.tail = ""
        with redirect_stdout(cast("TextIO", self)), redirect_stderr(cast("TextIO", self)):
            yield


@contextmanager
def time_limit(seconds: float, dump: TextIO) -> Iterator[None]:
    """Raise UserCodeTimeout in the block after `seconds`; end the process after twice as long.

    For the main thread. Raises repeatedly, because user code may catch it; not on Windows.
    """
    faulthandler.dump_traceback_later(2 * seconds, exit=True, file=dump)
    timer = hasattr(signal, "setitimer")
    if timer:
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 4)
    try:
        yield
    finally:
        if timer:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        faulthandler.cancel_dump_traceback_later()


def _interrupt(number: int, frame: object) -> None:
    raise UserCodeTimeout


class _Stop(BaseException):
    """An exception that ends a law whose time is up; Hypothesis lets it through."""


class _Recorded:
    """A wrapper of Hypothesis' `data` that records drawn values and sample specifications."""

    def __init__(self, data: DataObject, sample_specs: set[SampleSpec]) -> None:
        self._data, self._sample_specs = data, sample_specs
        self.drawn: list[Any] = []

    def draw(self, strategy: SearchStrategy[Any], label: Any = None) -> Any:
        """Draw a value."""
        value = self._data.draw(strategy, label)
        self.drawn.append(value)
        of_case = value.strategy if isinstance(value, Case) else value
        if isinstance(of_case, Strategy):
            self._sample_specs.add(of_case.sample_spec)
        return value


class Trial:
    """One law, tried on random cases until a case fails, all hold or the time is up."""

    def __init__(
        self, law: Law, value: Strategy, limits: TrialLimits, send: Callable[[object], None], output: OutputTail, dump: TextIO
    ) -> None:
        self._law, self._value, self._limits, self._send, self._output, self._dump = law, value, limits, send, output, dump
        self._held = self._shrunk = 0  # cases that held; smaller cases tried after a failure
        self._end = monotonic() + limits.law_timeout
        self._reported = 0.0
        self._failure: tuple[int, str] | None = None  # length and text of the smallest failing case
        self._stopped = self._timed_out = False
        self.sample_specs: set[SampleSpec] = set()  # of the strategies that were drawn

    def verdict(self) -> LawVerdict:
        """Return the outcome of the law."""
        trial = given(data=any_data())(self._case)
        trial = settings(
            max_examples=self._limits.examples,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
        )(trial)
        error: BaseException | None = None
        try:
            with self._output.captured():
                seeded(self._limits.seed)(trial)()
        except BaseException as raised:  # noqa: BLE001 - user code may raise anything, and a failed law is no error here
            error = raised
        if self._failure is not None:
            flaky = isinstance(error, Flaky) and not self._stopped
            text = self._failure[1] + (
                "\nThe same case held when it ran again: a strategy or a rule must be pure." if flaky else ""
            )
            return LawVerdict(self._held, text, last=self._timed_out or self._law is progress)
        if error is None or self._stopped:
            none = "" if self._held else f"no case was finished within {self._limits.law_timeout:g} s (--law_timeout)"
            return LawVerdict(self._held, none, out_of_time=self._stopped)
        return LawVerdict(self._held, description(error, self._limits.case_timeout), last=True)

    def _case(self, data: DataObject) -> None:
        """Try one case; re-raise for Hypothesis."""
        if monotonic() > self._end:
            self._stopped = True
            raise _Stop
        self._report()
        recorded = _Recorded(data, self.sample_specs)
        self._output.tail = ""
        try:
            with time_limit(self._limits.case_timeout, self._dump):
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
            self._reported = 0.0
        case = case_shown(drawn)
        self._stopped = self._timed_out = timed_out(error)
        if self._failure is None or len(case) < self._failure[0]:
            parts = [description(error, self._limits.case_timeout)]
            parts += [f"Case:\n{case}"] if case else []
            printed = self._output.tail.rstrip("\n")
            parts += [f"It printed:\n{printed}"] if printed else []
            self._failure = len(case), "\n".join(parts)
        if self._stopped:  # smaller cases would time out as well
            raise _Stop from None

    def _report(self) -> None:
        now, shrinking = monotonic(), self._failure is not None
        self._shrunk += shrinking
        if now >= self._reported + REPORT_SECONDS:
            self._reported = now
            self._send(Counted(self._shrunk if shrinking else self._held, shrinking))
