"""`dlstep laws`: the laws of the engine, tried on a user's strategy or rule."""

import sys
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Interval

from ..extras import require
from .json_text import json_text
from .options import command_parser
from .parser import ArgumentParser, Namespace

if TYPE_CHECKING:
    from rich.console import Console

    from ..processes import Worker
    from ..testing.trial import LawVerdict, Opened, TrialLimits

EXAMPLES = """dlstep laws my_strategy.py
dlstep laws my_rule.py --examples 1000 --law_timeout 600
dlstep laws factor --only [progress,transparency]"""
SILENT_SECONDS = 60.0  # grace beyond the time limits, also for imports: a worker silent for longer counts as stopped


Seconds = Annotated[float, Interval(ge=0.01, le=1e6)]


@dataclass(frozen=True)
class LawsCommand:
    """Try the laws of the engine on a strategy or a rule, with random requests, budgets and aborts. Needs no model."""

    name: str
    """A .py file, dotted path or name of a strategy or of a rule."""
    _: KW_ONLY
    examples: Annotated[int, Ge(1)] = 100
    """Random cases for each law."""
    seed: int = 0
    """Seed of the cases."""
    only: tuple[str, ...] = ()
    """Only these laws; empty: all."""
    case_timeout: Seconds = 10.0
    """Seconds for one case."""
    shrink_timeout: Seconds = 10.0
    """Seconds to look for a smaller case once one has failed."""
    law_timeout: Seconds = 120.0
    """Seconds for the cases of one law."""
    json: bool = False
    """Print a JSON list of rows, and nothing else, on stdout."""


def parser() -> ArgumentParser:
    """Return the parser of `dlstep laws`."""
    return command_parser("laws", LawsCommand, EXAMPLES)


def run(options: Namespace) -> int:
    """Try every law. Return 0 if all hold, otherwise 1.

    Raises ValueError for invalid options and for files without a rule or strategy.
    """
    require("dlstep laws", "laws")
    from rich.console import Console

    from ..testing.trial import KNOWN, TrialLimits

    for name in options.only:
        if name not in KNOWN:
            raise ValueError(f"law {name!r} is unknown: choose from {', '.join(KNOWN)}")
    laws = [name for name in KNOWN if not options.only or name in options.only]
    limits = TrialLimits(options.examples, options.seed, options.case_timeout, options.shrink_timeout, options.law_timeout)
    rows = _try(options.name, laws, limits, Console(stderr=options.json))
    if options.json:
        print(json_text(rows))
    return 1 if any(row["failure"] for row in rows) else 0


def _try(name: str, laws: list[str], limits: "TrialLimits", console: "Console") -> list[dict[str, Any]]:
    """Try laws in a worker process, because user code may stop or crash its process. Print and return the verdicts."""
    from rich.console import Console

    from ..processes import Worker
    from ..testing.trial import KNOWN, LawVerdict, serve

    def show(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    rows: list[dict[str, Any]] = []
    warned: set[str] = set()  # a rule is tried on several strategies
    subject, remaining = "", list[str]()
    with TemporaryDirectory() as folder:
        worker = Worker(serve, name, laws, limits, folder, name="the process")
        try:
            while True:
                with Console(stderr=True).status(f"trying {remaining[0]}" if remaining else f"loading {name}"):
                    message = _received(worker, limits, Path(folder), "" if subject else name)
                if message is None:
                    return rows
                if isinstance(message, LawVerdict):
                    law = remaining.pop(0)
                    show(f"  {'broken' if message.failure else 'holds '}  {law}{_out_of_time(message, limits)}")
                    if message.failure:
                        summary = (KNOWN[law].__doc__ or "").partition("\n")[0]
                        show(indent(f"{summary}\n{message.failure}", " " * 10))
                    rows.append({"subject": subject, "law": law, "failure": message.failure, "cases": message.cases})
                else:
                    subject, remaining = message.subject, list(laws)
                    show(subject)
                for warning in message.warnings:
                    if warning not in warned:
                        warned.add(warning)
                        show(f"  warning {warning}")
                if isinstance(message, LawVerdict) and message.last:
                    show("  the other laws are not tried: most of them would fail in the same way")
                if isinstance(message, LawVerdict) and message.died:
                    return rows
        finally:
            worker.kill()
            worker.end()


def _received(worker: "Worker", limits: "TrialLimits", folder: Path, loading: str) -> "Opened | LawVerdict | None":
    """Return the next message, or the verdict on a process that ended before.

    Raises ValueError, after printing the frames of user code, if `loading` cannot be loaded.
    """
    from ..processes import WorkerDied
    from ..testing.trial import TrialRefused, ended

    try:
        message = worker.receive(limits.law_timeout + limits.shrink_timeout + limits.case_timeout + SILENT_SECONDS)
    except WorkerDied as died:
        message = ended(str(died), limits, folder, loading)
    if not isinstance(message, TrialRefused):
        return message
    sentence, _, frames = message.reason.partition("\n")
    if frames:
        print(frames, file=sys.stderr)
    raise ValueError(sentence)


def _out_of_time(verdict: "LawVerdict", limits: "TrialLimits") -> str:
    if not verdict.out_of_time:
        return ""
    return f", in the {verdict.cases} of {limits.examples} cases that {limits.law_timeout:g} s allowed (--law_timeout)"
