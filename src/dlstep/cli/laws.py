"""`dlstep laws`: the laws of the engine, tried on a user's strategy or rule."""

from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..extras import require
from ..processes import Worker, WorkerDied
from .json_text import json_text
from .options import new_parser
from .parser import ArgumentParser, Namespace

if TYPE_CHECKING:
    from ..testing.trial import LawVerdict, TrialLimits

EXAMPLES = """
    dlstep laws my_strategy.py
    dlstep laws my_rule.py --examples 1000 --law_timeout 600
    dlstep laws factor --only [progress,transparency]
"""
PLAIN_SECONDS = 15.0  # seconds between two lines about the same law if stderr is no terminal
START_SECONDS = 60.0  # seconds allowed for the worker's imports
SILENT_SECONDS = 20.0  # seconds beyond the time limits after which a worker counts as stopped


def parser() -> ArgumentParser:
    """Return the parser of `dlstep laws`."""
    options = new_parser(
        "dlstep laws NAME [options]",
        "Try the laws of the engine on a strategy or a rule, with random requests, budgets and aborts. Needs no model.",
        EXAMPLES,
    )
    options.add_argument("name", type=str, help="A .py file, dotted path or name of a strategy or of a rule.")
    options.add_argument("--examples", type=int, default=100, help="Random cases for each law.")
    options.add_argument("--seed", type=int, default=0, help="Seed of the cases.")
    options.add_argument("--only", type=list[str] | str | None, default=None, help="Only these laws; null: all.")
    options.add_argument("--case_timeout", type=float, default=10.0, help="Seconds for one case.")
    options.add_argument(
        "--shrink_timeout", type=float, default=10.0, help="Seconds to look for a smaller case once one has failed."
    )
    options.add_argument("--law_timeout", type=float, default=120.0, help="Seconds for the cases of one law.")
    options.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    return options


def run(options: Namespace) -> int:
    """Try every law. Return 0 if all hold, otherwise 1.

    Raises ValueError for invalid options and for files without a rule or strategy.
    """
    require("dlstep laws", "laws")
    if options.examples < 1:
        raise ValueError(f"--examples must be at least 1, got {options.examples}")
    for name in ("case_timeout", "shrink_timeout", "law_timeout"):
        if not 0.01 <= options[name] <= 1e6:
            raise ValueError(f"--{name} must be at least 0.01 and at most 1000000 seconds, got {options[name]}")
    from ..testing.trial import KNOWN, TrialLimits

    only = [options.only] if isinstance(options.only, str) else options.only
    for name in only or []:
        if name not in KNOWN:
            raise ValueError(f"law {name!r} is unknown: choose from {', '.join(KNOWN)}")
    chosen = [name for name in KNOWN if only is None or name in only]
    limits = TrialLimits(options.examples, options.seed, options.case_timeout, options.shrink_timeout, options.law_timeout)
    with TrialReport(limits, json=options.json) as report:
        _try(options.name, chosen, limits, report)
    if options.json:
        print(json_text(report.rows))
    return 1 if any(row["failure"] for row in report.rows) else 0


def _try(name: str, laws: list[str], limits: "TrialLimits", report: "TrialReport") -> None:
    """Try the laws in a worker process, because user code may stop or crash its process; report each message."""
    from ..testing.failures import dumped_frames
    from ..testing.trial import Finished, TrialRefused, serve

    with TemporaryDirectory() as folder:
        dump = Path(folder, "stack")
        worker = Worker(serve, name, laws, limits, str(dump), name="the process")
        spare = START_SECONDS
        try:
            while not isinstance(message := worker.receive(2 * limits.case_timeout + spare), Finished):
                spare = SILENT_SECONDS
                if isinstance(message, TrialRefused):
                    raise report.refusal(message.reason)
                report.take(message)
        except WorkerDied as died:
            stack = dump.read_text(encoding="utf-8", errors="replace") if dump.exists() else ""
            late = f"the case did not end within {2 * limits.case_timeout:g} s, although it was interrupted"
            reason = late if "Timeout (" in stack else str(died)
            report.died("\n".join(filter(None, (reason, dumped_frames(stack)))), name)
        finally:
            worker.kill()
            worker.end()


class TrialReport:
    """The output of a trial: a line per finished law, and one updated in place for the current law.

    If stderr is not a terminal, a line is printed each time a law has run for another
    `PLAIN_SECONDS`.

    Args:
        limits: The limits of the trial.
        json: Whether stdout is only for the rows; everything else then goes to stderr.
    """

    def __init__(self, limits: "TrialLimits", *, json: bool) -> None:
        self.rows: list[dict[str, Any]] = []
        self._limits = limits
        self._live = live = Console(stderr=True)
        columns = (TextColumn("  {task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=live, transient=True)
        self._terminal = live.is_terminal
        # Lines for a terminal go through the bar's console, which draws them above the bar.
        self._shares = self._terminal and (json or Console().is_terminal)
        self._console = live if self._shares else Console(stderr=json)
        self._subject = self._law = self._summary = ""
        self._began = self._last_line = 0.0
        self._shrinking = False
        self._warned: set[str] = set()

    def __enter__(self) -> "TrialReport":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._terminal:
            self._bar.stop()

    def take(self, message: object) -> None:
        """Show one message of the trial."""
        from ..testing.trial import Began, Counted, LawVerdict, Opened

        match message:
            case Opened():
                self._subject = message.subject
                self._print(message.subject)
                self._warn(message.warnings)
            case Began():
                self._begin(message.law, message.summary)
            case Counted():
                self._count(message.cases, shrinking=message.shrinking)
            case LawVerdict():
                self._judge(message)
            case _:
                raise TypeError(f"unknown message {message!r}")

    def died(self, failure: str, name: str) -> None:
        """Show that the process of the trial ended before a verdict."""
        from ..testing.trial import LawVerdict

        if not self._law:
            raise self.refusal(f"{name} cannot be loaded: {failure}")
        self._judge(LawVerdict(0, failure, last=True))

    def refusal(self, reason: str) -> ValueError:
        """Print the frames after the first line of a reason, and return the error to raise."""
        sentence, _, frames = reason.partition("\n")
        if frames:
            self._print(frames, self._live)
        return ValueError(sentence)

    def _begin(self, law: str, summary: str) -> None:
        self._law, self._summary = law, summary
        self._began = self._last_line = monotonic()
        self._shrinking = False
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.add_task(law, total=self._limits.examples, note="")
        if self._terminal:
            self._bar.start()

    def _count(self, cases: int, *, shrinking: bool) -> None:
        if self._terminal:
            note = "a case failed; shrinking it" if shrinking else ""
            self._bar.update(self._bar.task_ids[-1], note=note, completed=None if shrinking else cases)
        elif shrinking and not self._shrinking:
            most = f"at most {self._limits.shrink_timeout:g} s"
            self._print(f"          {self._law}: a case failed; shrinking it, {most}", self._live)
        elif monotonic() - self._last_line >= PLAIN_SECONDS and not shrinking:
            self._last_line = monotonic()
            spent = f"{self._last_line - self._began:.0f} s"
            self._print(f"          {self._law}: {cases} of {self._limits.examples} cases, {spent}", self._live)
        self._shrinking = shrinking

    def _judge(self, verdict: "LawVerdict") -> None:
        tried = f", in the {verdict.cases} of {self._limits.examples} cases that {self._limits.law_timeout:g} s allowed"
        more = f"{tried} (--law_timeout)" if verdict.out_of_time and not verdict.failure else ""
        self._print(f"  {'broken' if verdict.failure else 'holds '}  {self._law}{more}")
        if verdict.failure:
            self._print(indent(f"{self._summary}\n{verdict.failure}", " " * 10))
        self._warn(verdict.warnings)
        self.rows.append({"subject": self._subject, "law": self._law, "failure": verdict.failure, "cases": verdict.cases})
        if verdict.last:
            self._print("  the other laws are not tried: most of them would fail in the same way")

    def _warn(self, warnings: tuple[str, ...]) -> None:
        for warning in warnings:
            if warning not in self._warned:  # a rule is tried on several strategies
                self._warned.add(warning)
                self._print(f"  warning {warning}")

    def _print(self, text: str, console: Console | None = None) -> None:
        if self._terminal and not self._shares:
            self._bar.stop()  # until the next law begins; stdout may lead to the same terminal, as with `| tee`
        (console or self._console).print(text, markup=False, highlight=False, soft_wrap=True)
