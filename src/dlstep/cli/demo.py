"""`dlstep demo`: watch blocks fill, then compare the accuracy of faster decoding."""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from inspect import getdoc
from time import monotonic
from typing import Annotated, Any, TypeVar

from annotated_types import Ge
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .. import tiny
from ..evaluate.comparing import ComparisonRow, EvalEntry, compared, curves_of
from ..evaluate.frontier import decoder_entries
from ..evaluate.options import EvalOptions
from ..llm import LLM
from ..text.words import counted, harmless
from ..views import frames_view, legend, recording
from ..views.progress_bars import counting_bar, drawing
from .options import Namespace, json_text

EXAMPLES = "dlstep demo\ndlstep demo --problems 500\ndlstep demo --json > rows.json"
TASK = "shells"
Loaded = TypeVar("Loaded")
Runs = list[dict[str, Any]]  # the runs of a recording
SECONDS_PER_STEP = 0.2  # slow enough to watch on a terminal


@dataclass(frozen=True, kw_only=True)
class DemoCommand:
    """Watch embedded models decode word problems, then compare accuracy and speed."""

    problems: Annotated[int, Ge(1)] = 64
    """Held-out problems per row of the table."""
    shown: Annotated[int, Ge(1)] = 2
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
    console, device = Console(), options.device
    if options.json:
        entries = decoder_entries(device)
    else:
        with drawing(enabled=not console.is_terminal):  # on a terminal, only the pictures are drawn
            entries = show_all(tiny.problems(options.shown, options.seed), device, console)
    chosen = EvalOptions(dataset_limit=options.problems, problem_seed=options.seed)
    with counting_bar(options.problems * sum(len(entry.grid) for entry in entries), enabled=True) as count:
        rows = compared(entries, chosen, show=count)
    if options.json:
        print(json_text([asdict(row) for row in rows]))
    else:
        print_table(rows, console)
    return 0


def show_all(problems: Sequence[tiny.Problem], device: str | None, console: Console) -> list[EvalEntry]:
    """Load and return all decoders, and decode `problems` with all except the first.

    On a terminal, show pictures with a legend, beginning with a recorded decode; otherwise, print text.
    """
    if console.is_terminal:
        entries = load_entries(device, console)
    else:
        for number, problem in enumerate(problems, 1):
            print(f"problem {number}: {problem.prompt.strip()} ({problem.answer})")
        entries = decoder_entries(device)
    described: set[type] = set()
    for entry in entries[1:]:
        strategy = type(entry.engine.first.strategy)
        summary = (getdoc(sys.modules[strategy.__module__]) or "").splitlines()[0].partition(": ")[2]
        show(entry, problems, console, f"{entry.strategy}: {'another option' if strategy in described else summary}")
        described.add(strategy)
    return entries


def load_entries(device: str | None, console: Console) -> list[EvalEntry]:
    """Load all decoders. Meanwhile, show a legend and a recorded decode."""
    print_legend(console)
    # Loading takes seconds because torch and transformers are imported. Ctrl-C must not wait for the loading thread, so the
    # pool is shut down without waiting.
    pool = ThreadPoolExecutor(1)
    entries = show_recorded(tiny.recorded()["runs"], console, lambda: pool.submit(decoder_entries, device))
    pool.shutdown(wait=False)
    return entries.result()


def print_legend(console: Console) -> None:
    """Print an introduction and the legend of the pictures."""
    console.print("Tiny models answer word problems, several positions in each forward pass.")
    console.print(legend())


def picture(runs: Runs, title: str) -> Group:
    """Return a picture of the answers of a recording, in order of arrival."""
    return Group(Text(title, style="bold"), *(frames_view(run["head"], run["frames"]) for run in runs))


def recorded_picture(runs: Runs, forwards: int, note: str = "") -> Group:
    """Return a picture of a recorded decode after some forward passes, with a note below it."""
    title = f"recorded decode of {runs[0]['head']['model']}, until torch and transformers are imported"
    shown = [{**run, "frames": run["frames"][: forwards + 1]} for run in runs]
    return Group(picture(shown, title), *([Text(note, "dim")] if note else []))


def show_recorded(runs: Runs, console: Console, load: Callable[[], Future[Loaded]]) -> Future[Loaded]:
    """Show a recorded decode frame by frame.

    Call `load` after the first frame, wait until its future is done, and return the future.
    """
    last = max(len(run["frames"]) for run in runs) - 1
    with Live(recorded_picture(runs, 0), console=console, auto_refresh=False) as live:
        live.refresh()
        loading, began = load(), monotonic()
        for shown in range(last + 1):
            live.update(recorded_picture(runs, shown), refresh=True)
            time.sleep(SECONDS_PER_STEP)
        while not loading.done():
            note = f"importing torch and transformers: {monotonic() - began:.0f} s"
            live.update(recorded_picture(runs, last, note), refresh=True)
            wait([loading], SECONDS_PER_STEP)
        live.update(recorded_picture(runs, last), refresh=True)
    return loading


def show(entry: EvalEntry, problems: Sequence[tiny.Problem], console: Console, title: str) -> None:
    """Decode `problems`: on a terminal as a live picture of the blocks, otherwise as text."""
    session = LLM.of(entry.engine).session()
    for problem in problems:
        session.submit(problem.prompt, EvalOptions().params(TASK, entry.grid[0]))
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            while not session.state.done:
                session.step()
                live.update(picture(recording(session.trace)["runs"], title), refresh=True)
                time.sleep(SECONDS_PER_STEP)
        return
    session.run()
    print(f"\n{title}")
    for number in range(len(problems)):
        output = session.output(number)
        cost = f"{counted(len(output.token_ids), 'token')} in {counted(output.nfe, 'forward pass')}"
        print(f"  {number + 1}: {harmless(output.text.strip())}\n     {cost}")


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
