"""`dlstep demo`: watch blocks fill, then compare the accuracy of faster decoding."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from inspect import getdoc

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .. import tiny
from ..core import Json, PositiveInt
from ..evaluate import EvalOptions
from ..evaluate.comparing import ComparisonRow, EvalEntry, compared, curves_of
from ..evaluate.frontier import decoder_entries
from ..llm import LLM
from ..views import frames_view, legend, recording
from ..views.progress_bars import counting_bar, waiting_line
from .options import Namespace, json_text

EXAMPLES = "dlstep demo\ndlstep demo --problems 500\ndlstep demo --json > rows.json"
TASK = "shells"
Runs = list[Json]  # the runs of a recording
SECONDS_PER_STEP = 0.2  # slow enough to watch on a terminal


@dataclass(frozen=True, kw_only=True)
class DemoCommand:
    """Watch embedded models decode word problems, then compare accuracy and speed."""

    problems: PositiveInt = 64
    """Held-out problems per row of the table."""
    shown: PositiveInt = 2
    """Problems whose decode is shown; none with --json."""
    seed: int = 0
    """Seed of the problems."""
    device: str | None = None
    """cpu or cuda; by default cuda if there is one."""
    json: bool = False
    """Print a JSON list of rows, and nothing else, on stdout."""


COMMAND = DemoCommand


def run(options: Namespace) -> int:
    """Show decodes and then the table. With --json, print only the rows."""
    console = Console()
    if not options.json:
        print_legend(console)
    with waiting_line("importing torch and transformers"):
        entries = decoder_entries(options.device)
    if not options.json:
        show_all(entries, tiny.problems(options.shown, options.seed), console)
    chosen = EvalOptions(dataset_limit=options.problems, problem_seed=options.seed)
    with counting_bar(options.problems * sum(len(entry.grid) for entry in entries), enabled=True) as count:
        rows = compared(entries, chosen, show=count)
    if options.json:
        print(json_text([asdict(row) for row in rows]))
    else:
        print_table(rows, console)
    return 0


def show_all(entries: Sequence[EvalEntry], problems: Sequence[tiny.Problem], console: Console) -> None:
    """Show how all decoders except the first decode `problems`."""
    described: set[type] = set()
    for entry in entries[1:]:
        strategy = type(entry.engine.first.strategy)
        summary = (getdoc(sys.modules[strategy.__module__]) or "").splitlines()[0].partition(": ")[2]
        show(entry, problems, console, f"{entry.strategy}: {'another option' if strategy in described else summary}")
        described.add(strategy)


def print_legend(console: Console) -> None:
    """Print an introduction and the legend of the pictures."""
    console.print("Tiny models answer word problems, several positions in each forward pass.")
    console.print(legend())


def picture(runs: Runs, title: str) -> Group:
    """Return a picture of the answers of a recording, in order of arrival."""
    return Group(Text(title, style="bold"), *(frames_view(run["head"], run["frames"]) for run in runs))


def show(entry: EvalEntry, problems: Sequence[tiny.Problem], console: Console, title: str) -> None:
    """Decode `problems`: on a terminal as a live picture of the blocks, otherwise print the last picture."""
    session = LLM.of(entry.engine).session()
    for problem in problems:
        session.submit(problem.prompt, EvalOptions().params(TASK, entry.grid[0]))
    with Live(console=console, auto_refresh=False) as live:
        while not session.state.done:
            session.step()
            live.update(picture(recording(session.trace)["runs"], title), refresh=True)
            time.sleep(SECONDS_PER_STEP * console.is_terminal)
    if not console.is_terminal:  # there, `Live` ends its last line
        console.line()


def print_table(rows: Sequence[ComparisonRow], console: Console) -> None:
    """Print a line per decoder, with figures for each value of its option, in 80 columns."""
    table = Table("strategy", "option", "answers %", "tokens per pass", box=SIMPLE_HEAD, pad_edge=False)
    for name, own in curves_of(rows)[TASK].items():
        values = " ".join([short_name(own[0]), *(row.value for row in own)])
        answers = " ".join(f"{100 * row.accuracy:3.0f}" for row in own)
        speeds = " ".join(f"{row.tokens_per_forward:.2f}" for row in own)
        table.add_row(name, values, answers, speeds)
    console.print(f"{rows[0].answers} held-out problems, decoded together. Each option has three values; the")
    console.print("figures follow that order: right answers, and tokens unmasked per forward pass.")
    console.print(table)
    console.print("Unmasking more tokens per forward pass is faster, but less accurate.")
    console.print("--json prints all figures; docs/results.md has those for 500 problems.")


def short_name(row: ComparisonRow) -> str:
    """Return the short name of the varied option: `accept`, `entropy`."""
    return next(iter(row.options)).partition("_")[0]
