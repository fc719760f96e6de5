"""`dlstep laws`: the laws of the engine, tried on a user's strategy or rule."""

import sys
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Interval

from ..extras import require
from .options import Namespace, json_text

if TYPE_CHECKING:
    from rich.console import Console

    from ..testing.trial import TrialLimits, Verdict

EXAMPLES = """dlstep laws my_strategy.py
dlstep laws my_rule.py --examples 1000 --law_timeout 600
dlstep laws factor --only [progress,transparency]"""

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
    law_timeout: Seconds = 120.0
    """Seconds for the cases of one law."""
    json: bool = False
    """Print a JSON list of rows, and nothing else, on stdout."""


COMMAND = LawsCommand


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
    limits = TrialLimits(options.examples, options.seed, options.case_timeout, options.law_timeout)
    try:
        rows = _tried(options.name, laws, limits, Console(stderr=options.json))
    except ValueError as refused:
        sentence, _, frames = str(refused).partition("\n")
        if frames:
            print(frames, file=sys.stderr)
        raise ValueError(sentence) from None
    if options.json:
        print(json_text(rows))
    return 1 if any(row["failure"] for row in rows) else 0


def _tried(name: str, laws: list[str], limits: "TrialLimits", console: "Console") -> list[dict[str, Any]]:
    """Try laws on each subject. Print and return the verdicts. Raises ValueError if `name` cannot be loaded."""
    from rich.console import Console

    from ..testing.trial import KNOWN, Trials

    def show(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    rows: list[dict[str, Any]] = []
    warned: set[str] = set()  # a rule is tried on several strategies
    waiting = Console(stderr=True)
    with closing(Trials(name, limits)) as trials:
        with waiting.status(f"loading {name}"):
            opened = trials.opened()
        for number, (subject, warnings) in enumerate(opened):
            show(subject)
            for warning in warnings:
                if warning not in warned:
                    warned.add(warning)
                    show(f"  warning {warning}")
            for law in laws:
                with waiting.status(f"trying {law}"):
                    verdict = trials.verdict(number, law)
                show(f"  {'broken' if verdict.failure else 'holds '}  {law}{_out_of_time(verdict, limits)}")
                if verdict.failure:
                    summary = (KNOWN[law].__doc__ or "").partition("\n")[0]
                    show(indent(f"{summary}\n{verdict.failure}", " " * 10))
                rows.append({"subject": subject, "law": law, "failure": verdict.failure, "cases": verdict.cases})
                if verdict.last:
                    show("  the other laws are not tried: most of them would fail in the same way")
                    break
    return rows


def _out_of_time(verdict: "Verdict", limits: "TrialLimits") -> str:
    if not verdict.out_of_time:
        return ""
    return f", in the {verdict.cases} of {limits.examples} cases that {limits.law_timeout:g} s allowed (--law_timeout)"
