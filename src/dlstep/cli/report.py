"""`dlstep report`: wrong answers and costs in a run of `dlstep eval`."""

from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from ..text.words import counted
from .options import IMPORTED, Namespace, json_text, paths_in

if TYPE_CHECKING:
    from rich.console import Console

    from ..evaluate import EvalRun

EXAMPLES = """dlstep report dlstep-eval
dlstep report dlstep-eval --show shells/17      decode it again, step by step
dlstep report d2f --against dlstep-eval"""


@dataclass(frozen=True)
class ReportCommand:
    """Report wrong answers and costs in a run of `dlstep eval`."""

    folder: Path
    """The folder that --out named."""
    _: KW_ONLY
    show: str | None = None
    """Step through this answer instead, and keep its trace."""
    against: Path | None = None
    """Compare with the run in this folder."""
    json: bool = False
    """Print the table as JSON, and nothing else, on stdout."""


COMMAND = ReportCommand


def run(options: Namespace) -> int:
    """Print the report, or the steps of one answer."""
    from rich.console import Console

    from ..evaluate.checkpoint import read
    from ..evaluate.report import report_lines
    from ..evaluate.table import lines_of, print_parts, run_parts

    for name in ("json", "against"):
        if options.show and options[name]:
            raise ValueError(f"--show and --{name} do not go together: give one of them")
    result = read(options.folder)
    if not result.rows:
        raise ValueError(f"the run in {options.folder} has no answers yet")
    console, lines = Console(), lines_of(result, None if options.against is None else read(options.against))
    if options.show is not None:
        show(result, options.show, console)
    elif options.json:
        print(json_text([asdict(line) for line in lines]))
    else:
        model = result.settings["key"]["engine"]["model"]
        head = f"{model}: {len(result.rows)} of {result.expected} answers in {result.folder}"
        console.print(head, markup=False, highlight=False, soft_wrap=True)
        print_parts([*run_parts(lines)], console)
        for line in report_lines(result):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def show(run: "EvalRun", name: str, console: "Console") -> None:
    """Print an answer as it forms, one paragraph for each forward pass that sampled."""
    from rich.text import Text

    from ..evaluate.report import shown
    from ..views import answer_text, legend, recording

    row, trace, path = shown(run, name)
    console.print(Text(f"{name}: {row['found']!r}, expected {row['gold']!r}"))
    console.print(legend())
    (answer,), steps = recording(trace)["runs"], 0
    for number, frame in enumerate(answer["frames"], 1):
        if frame["step"] > steps:
            steps = frame["step"]
            console.print(Text(f"{steps:3} "), answer_text(answer["head"], answer["frames"][:number], prompt=False), sep="")
    engine = run.settings["told"]["engine"]
    own = "".join(f" --{name} {quote(part)}" for name in IMPORTED for part in paths_in(engine.get(name)))
    line = f"{counted(steps, 'step')}; `dlstep view {quote(str(path))}{own} --open` shows the trace in a browser"
    console.print(Text(line), soft_wrap=True)
