"""`dlstep report`: wrong answers and costs in a run of `dlstep eval`."""

from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from ..text.words import counted
from .options import command_parser, json_text
from .parser import ArgumentParser, Namespace

MOST = 5
EXAMPLES = """dlstep report dlstep-eval
dlstep report dlstep-eval --html report.html --steps 3
dlstep report dlstep-eval --show shells/17      decode it again, step by step
dlstep report d2f --against dlstep-eval"""


@dataclass(frozen=True)
class ReportCommand:
    """Report wrong answers and costs in a run of `dlstep eval`."""

    folder: Path
    """The folder that --out named."""
    _: KW_ONLY
    html: Path | None = None
    """Write a page into this file instead."""
    show: str | None = None
    """Step through this answer instead, and keep its trace."""
    against: Path | None = None
    """Compare with the run in this folder."""
    most: Annotated[int, Ge(0)] | None = None
    """Maximum number of wrong answers in the text; null: 5. The page lists all of them."""
    steps: Annotated[int, Ge(0)] = 0
    """With --html: decode so many wrong answers again, so that the page shows their steps (and those of earlier --show)."""
    json: bool = False
    """Print the table as JSON, and nothing else, on stdout."""


def parser() -> ArgumentParser:
    """Return the parser of `dlstep report`."""
    return command_parser("report", ReportCommand, EXAMPLES)


def run(options: Namespace) -> int:
    """Print the report, or write it as a page."""
    from rich.console import Console

    from ..evaluate.checkpoint import read
    from ..evaluate.report import report_lines, run_page, shown, untraced
    from ..evaluate.table import lines_of, print_parts, run_parts

    check(options)
    result = read(options.folder)
    if not result.rows:
        raise ValueError(f"the run in {options.folder} has no answers yet")
    against = None if options.against is None else read(options.against)
    lines = lines_of(result, against)
    if options.show is not None:
        return show(options)
    if options.html is not None:
        if names := untraced(result, options.steps):
            shown(result, names)
        options.html.write_text(run_page(result, lines), encoding="utf-8")
        return 0
    if options.json:
        print(json_text([asdict(line) for line in lines]))
        return 0
    console = Console()
    summary = f"{result.settings['key']['engine']['model']}: {len(result.rows)} of {result.expected} answers in {result.folder}"
    console.print(summary, markup=False, highlight=False, soft_wrap=True)
    print_parts([*run_parts(lines)], console)
    for line in report_lines(result, MOST if options.most is None else options.most):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def check(options: Namespace) -> None:
    """Raise ValueError for options that have no effect together."""
    kinds = [name for name in ("show", "html", "json") if options[name]]
    if len(kinds) > 1:
        raise ValueError(f"--{kinds[0]} and --{kinds[1]} do not go together: give one of them")
    for name, needs in (("steps", ["html"]), ("most", [])):
        if options[name] and kinds != needs:
            context = f"next to --{kinds[0]}" if kinds else f"without --{needs[0]}"
            raise ValueError(f"--{name} does nothing {context}: leave it out")


def show(options: Namespace) -> int:
    """Print an answer as it forms, one paragraph for each forward pass that sampled."""
    from rich.console import Console
    from rich.text import Text

    from ..evaluate.checkpoint import read
    from ..evaluate.report import row_named, shown, trace_path
    from ..views import answer_text, legend

    console, result = Console(), read(options.folder)
    row = row_named(result, options.show)
    (trace,) = shown(result, [options.show])
    console.print(Text(f"{options.show}: {row['found']!r}, expected {row['gold']!r}"))
    console.print(legend(("final", "held", "open", "masked")))
    steps = 0
    for state in trace.states():
        sequence = state.find(0)
        if sequence is not None and sequence.steps > steps:
            steps = sequence.steps
            console.print(Text(f"{steps:3} "), answer_text(sequence, state, prompt=False), sep="")
    path = trace_path(result.folder, options.show)
    console.print(Text(f"{counted(steps, 'step')}; the trace is in {path}, `dlstep replay {path}` checks it"), soft_wrap=True)
    return 0
