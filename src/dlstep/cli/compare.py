"""`dlstep compare`: accuracy against speed of decoding rules, as a table, a picture and JSON."""

from collections.abc import Iterator, Sequence as Items
from dataclasses import asdict
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from .. import rules
from ..bench.compare import CARRIERS, Entry, Point, Question, entries, measured, read_questions, story_questions
from ..bench.plot import check_plot, plot_points
from ..core.words import printable
from ..llm import LLM
from .json_text import json_text
from .options import new_parser

EXAMPLES = """
    dlstep compare
    dlstep compare --rules [threshold,quota,./my_rule.py] --problems 200 --plot rules.png
    dlstep compare --model /models/sdar-1.7b --strategies [multi_bd] --questions gsm8k.jsonl --max_tokens 512 --out rules.json
"""
CAUTION = (
    "Rankings on tiny models do not carry over to large ones: these write a few dozen tokens in blocks of 8. Use --model and "
    "--questions for yours."
)


def parser() -> ArgumentParser:
    """The options of `dlstep compare`."""
    options = new_parser(
        "dlstep compare [options]", "Compare decoding rules, each over one of its own options, on the same problems.", EXAMPLES
    )
    every = "all, or names, dotted paths and .py files of rules, as [threshold,./my_rule.py]."
    options.add_argument("--rules", type=list[str] | str, default="all", help=every)
    carriers = f"Strategies that hold the rules; null: {' and '.join(CARRIERS)}, or the one that --model is decoded with."
    options.add_argument("--strategies", type=list[str] | None, default=None, help=carriers)
    options.add_argument("--model", type=str | None, default=None, help="Checkpoint folder; null: the embedded models.")
    options.add_argument("--questions", type=str | None, default=None, help="JSON lines with prompt and answer; null: stories.")
    options.add_argument("--problems", type=int, default=100, help="Most problems.")
    options.add_argument("--seed", type=int, default=0, help="Seed of the stories.")
    options.add_argument("--max_tokens", type=int, default=64, help="Most tokens of an answer.")
    options.add_argument("--device", type=str | None, default=None, help="cpu or cuda; by default cuda if there is one.")
    options.add_argument("--plot", type=str | None, default=None, metavar="FILE", help="Draw the frontiers into this file.")
    options.add_argument("--out", type=str | None, default=None, metavar="FILE", help="Write the rows as JSON into this file.")
    options.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    return options


def run(options: Namespace) -> int:
    """Measure, then print, draw and write."""
    for name in ("problems", "max_tokens"):
        if options[name] < 1:
            raise ValueError(f"--{name} must be at least 1, got {options[name]}")
    if options.plot is not None:
        check_plot()
    questions = story_questions(options.problems, options.seed)
    if options.questions is not None:
        questions = read_questions(Path(options.questions))[: options.problems]
    lines = entries(names_of(options.rules), options.strategies, options.model, options.device)
    points = list(compared(lines, questions, options))
    rows = [asdict(point) for point in points]
    if options.out is not None:
        Path(options.out).write_text(json_text(rows) + "\n", encoding="utf-8")
    if options.plot is not None:
        plot_points(points, Path(options.plot))
    if options.json:
        print(json_text(rows))
    else:
        print_points(points, Console())
    return 0


def names_of(given: str | list[str]) -> list[str]:
    """The rules that are meant."""
    if given == "all":
        return list(rules.available())
    return [given] if isinstance(given, str) else given


def compared(lines: Items[tuple[LLM, Entry]], questions: Items[Question], options: Namespace) -> Iterator[Point]:
    """The points of all lines, with a bar on stderr that leaves nothing behind."""
    console = Console(stderr=True)
    columns = (TextColumn("measuring"), BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(lines))
        for llm, entry in lines:
            bar.update(task, description=f"{entry.rule} on {entry.strategy}")
            yield from measured(llm, entry, questions, options.max_tokens)
            bar.advance(task)


def print_points(points: Items[Point], console: Console) -> None:
    """A table for each strategy, a line for each rule, a figure for each value of its option; it fits 80 columns."""
    console.print(f"{points[0].problems} problems; the values of each rule's option, in the order of its figures:")
    swept = {
        point.rule: f"{point.option} {', '.join(map(shown, values_of(points, point)))}" for point in points if point.option
    }
    for rule, values in swept.items():
        console.print(f"  {printable(Path(rule).stem)}: {values}", highlight=False, soft_wrap=True, markup=False)
    for strategy in dict.fromkeys(point.strategy for point in points):
        own = [point for point in points if point.strategy == strategy]
        title = f"{strategy}, {own[0].model}"
        made = Table(title, "right answers, % @ tokens per forward", box=SIMPLE_HEAD, pad_edge=False)
        for rule in dict.fromkeys(point.rule for point in own):
            figures = [f"{100 * point.right:3.0f} @{point.tokens_per_forward:4.1f}" for point in own if point.rule == rule]
            made.add_row(Text(printable(Path(rule).stem)), "  ".join(figures))
        console.print(made)
    console.print(CAUTION)


def values_of(points: Items[Point], like: Point) -> list[object]:
    """The values of the option that a rule was compared over."""
    return [point.value for point in points if (point.rule, point.strategy) == (like.rule, like.strategy)]


def shown(value: object) -> str:
    """A value of an option in few characters."""
    return f"{value:g}" if isinstance(value, float) else str(value)
