"""`dlstep compare`: accuracy against speed of strategies and rules on tasks."""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..core.checks import short
from ..engine.config import EngineConfig
from ..text.words import clipped, counted, printable
from ..views.figures import interval, text_table, with_error
from .eval import ENGINE_FIELDS, report_failures
from .json_text import json_text
from .options import add_options, field_help, new_parser
from .parser import ArgumentParser, Namespace

if TYPE_CHECKING:
    from ..evaluate.comparing import ComparisonRow, Curve
    from ..evaluate.options import EvalOptions

EXAMPLES = """
    dlstep compare                                    every rule on a grid of blocks and on a canvas, embedded models
    dlstep compare --strategies all --rules threshold --problems 200 --out strategies
    dlstep compare --rules [threshold,quota,./my_rule.py] --plot rules.png
    dlstep compare --strategies multi_bd --rules threshold --grid '{"accept_threshold": [0.5, 0.9], "buffer_size": [1, 4]}'
    dlstep compare --model /models/sdar-1.7b --tasks [gsm8k,math500] --data /data --prompts dlstep --out sdar
    dlstep compare --model /models/sdar-1.7b --questions mine.jsonl --max_tokens 512
    dlstep compare --rules threshold --quantization [none,fp8]
"""
CAUTION = (
    "Rankings on tiny models do not carry over to large ones: these write a few dozen tokens in blocks of 8. Use --model with "
    "--tasks or --questions for yours."
)
MARKS = (
    "* on the frontier: nothing is as good in both and better in one",
    "= as right as the best, as far as these problems can tell",
)
OWN_OF_EVAL = (
    "tasks",
    "out",
    "dataset_limit",
    "problem_seed",
    "workers",
    "worker_timeout",
    "grid",
)  # fixed, or set by other options
OWN_OF_ENGINE = ("decoding_strategy", "sampling_mode", "seed", "quantization")
FILES = ("rows.json", "rows.csv", "frontier.png", "report.html")


def parser() -> ArgumentParser:
    """Return the parser of `dlstep compare`."""
    from ..evaluate.options import EvalOptions

    options = new_parser(
        "dlstep compare [options]", "Compare strategies and decoding rules on tasks, each over values of an option.", EXAMPLES
    )
    every = "all, or names, dotted paths and .py files of rules, as [threshold,./my_rule.py]."
    options.add_argument("--rules", type=list[str] | str, default="all", help=every)
    carriers = (
        "all, or strategies by name, path or file; one without a rule is compared unchanged. null: multi_bd and dual_cache, "
        "or the one that --model is decoded with."
    )
    options.add_argument("--strategies", type=list[str] | str | None, default=None, help=carriers)
    grid = """Options to vary, as '{"accept_threshold": [0.5, 0.9]}', every combination; null: what
        each rule or strategy names."""
    options.add_argument("--grid", type=Any, default=None, metavar="JSON", help=grid)
    quantizations = "none, fp8, or both as [none,fp8], which shows the cost in accuracy."
    options.add_argument("--quantization", type=list[str] | str, default="none", help=quantizations)
    texts = field_help(EvalOptions)
    tasks = f"{texts['tasks']} null: shells, or questions where a file of them is given."
    options.add_argument("--tasks", type=list[str] | str | None, default=None, help=tasks)
    options.add_argument("--problems", type=int, default=100, help="Most problems of each task, the first ones.")
    options.add_argument("--seed", type=int, default=0, help="Seed of the stories, and of samples.")
    plot = "Draw the curves into this file, a frame for each rule."
    options.add_argument("--plot", type=str | None, default=None, metavar="FILE", help=plot)
    out = f"Write {', '.join(FILES)} into this folder, and the answers, from which an interrupted comparison resumes."
    options.add_argument("--out", type=str | None, default=None, metavar="DIR", help=out)
    options.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    options.add_argument("--progress", type=bool, default=True, help="Draw a progress bar where stderr is a terminal.")
    evaluation = tuple(field for field in fields(EvalOptions) if field.name not in OWN_OF_EVAL)
    add_options(options, "evaluation", EvalOptions, evaluation, texts)
    engine = tuple(field for field in ENGINE_FIELDS if field.name not in OWN_OF_ENGINE)
    add_options(options, "engine", EngineConfig, engine, field_help(EngineConfig))
    return options


def run(options: Namespace) -> int:
    """Measure, then print, plot and write. Return 1 if a request was rejected or failed, else 0."""
    from ..engine.run_lock import check_free
    from ..evaluate.comparing import compared
    from ..evaluate.entries import entries
    from ..evaluate.items import read_documents
    from ..evaluate.options import CODE_TASKS, grid_of
    from ..evaluate.pictures import rules_figure, save
    from ..views.figures import check_plot
    from ..views.progress_bars import scoring_bar

    chosen = evaluation_of(options)
    out = None if options.out is None else Path(options.out)
    if out is not None:
        check_plot("--out")
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {short(str(out))} is a file, and must be a folder: --json prints the rows")
        check_free(out)
    if options.plot is not None:
        check_plot("--plot", Path(options.plot))
    grid_of(options.grid)  # raises before a model is loaded
    problems = sum(map(len, read_documents(chosen).values()))
    engine = {field.name: options[field.name] for field in ENGINE_FIELDS if field.name not in OWN_OF_ENGINE}
    found, left_out = entries(
        named(options.rules),
        carriers(options.strategies),
        grid=options.grid,
        quantizations=quantizations(options.quantization),
        **engine,
        seed=options.seed,
    )
    for reason in left_out:
        print(f"dlstep: left out: {printable(reason)}", file=sys.stderr)
    with scoring_bar(problems * sum(len(entry.grid) for entry in found), enabled=options.progress) as show:
        rows = compared(found, chosen, out, show=show)
    if options.plot is not None:
        save(rules_figure(rows), Path(options.plot))
    notes = [CAUTION] if options.model is None else []
    if out is not None:
        write(out, rows, command_of(options), left_out, notes)
    if options.json:
        print(json_text([asdict(row) for row in rows]))
    else:
        print_rows(rows, Console(), notes)
    not_run = [] if chosen.run_code else [task for task in chosen.tasks if task in CODE_TASKS]
    return report_failures(not_run, sum(row.failed for row in rows), next((row.error for row in rows if row.error), ""))


def evaluation_of(options: Namespace) -> "EvalOptions":
    """Return the options of the evaluation. Raises ValueError for values out of range."""
    from ..evaluate.options import EvalOptions, options_from

    if options.problems < 1:
        raise ValueError(f"--problems must be at least 1, got {options.problems}")
    values = {field.name: options[field.name] for field in fields(EvalOptions) if field.name not in OWN_OF_EVAL}
    tasks = options.tasks or ("shells" if options.questions is None else "questions")
    return options_from(values | {"tasks": tasks, "dataset_limit": options.problems, "problem_seed": options.seed})


def named(values: str | list[str]) -> list[str] | None:
    """Return the chosen rules, or None for all."""
    return None if values == "all" else [values] if isinstance(values, str) else values


def carriers(values: str | list[str] | None) -> list[str] | None:
    """Return the chosen strategies, or None if the model determines them."""
    from .. import strategies

    if values == "all":
        return list(strategies.available())
    return [values] if isinstance(values, str) else values


def quantizations(values: str | list[str]) -> list[str | None]:
    """Return the chosen quantizations, None for none."""
    return [None if value == "none" else value for value in ([values] if isinstance(values, str) else values)]


def command_of(options: Namespace) -> str:
    """Return the command line with all options that differ from their defaults."""
    words = ["dlstep", "compare"]
    for name, value in parser().changed(options).items():
        words += [f"--{name}"] + ([] if value is True else [value if isinstance(value, str) else json.dumps(value)])
    return shlex.join(words)


def write(folder: Path, rows: "Sequence[ComparisonRow]", command: str, left_out: Sequence[str], notes: Sequence[str]) -> None:
    """Write the files of a comparison."""
    from ..evaluate.comparing import ComparisonRow
    from ..evaluate.comparison_html import comparison_html
    from ..evaluate.pictures import save, tasks_figure
    from ..evaluate.table import as_csv

    page = comparison_html(rows, command=command, left_out=left_out, notes=notes)
    texts = (json_text([asdict(row) for row in rows]) + "\n", as_csv(rows, ComparisonRow), page)
    for name, text in zip((FILES[0], FILES[1], FILES[3]), texts, strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    save(tasks_figure(rows), folder / FILES[2])


def print_rows(rows: "Sequence[ComparisonRow]", console: Console, notes: Sequence[str]) -> None:
    """Print every set of options of each task, then the curves by falling AUP, in 80 columns."""
    from ..evaluate.comparing import curves_of

    tasks = curves_of(rows)
    for task, curves in tasks.items():
        for line in row_lines(task, curves):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    for mark in MARKS:
        console.print(mark, highlight=False)
    for task, curves in tasks.items():
        best = 100 * curves[0].rows[0].aup_best
        console.print(f"\n{task}: the AUP, y_max {best:.1f} %, and the fastest as right as the best")
        console.print(curves_table(curves))
    for note in notes:
        console.print(note)


def row_lines(task: str, curves: "Sequence[Curve]") -> Iterator[str]:
    """Yield the lines of a task: a heading for each entry, then a line for each of its sets of options."""
    from ..evaluate.comparing import value_of

    yield f"{task}, {counted(curves[0].rows[0].problems, 'problem')}"
    yield f"{'':13}{'right, %':>20}{'tok/fwd':>12}{'fwd/answer':>11}{'to the best, %':>16}{'seconds':>8}"
    for curve in curves:
        yield clipped(
            printable(f"{curve.label}, {curve.rows[0].model}: {', '.join(curve.rows[0].options) or 'nothing is varied'}")
        )
        for row in curve.rows:
            marks = "*" * row.on_frontier or " ", "=" if row.as_right else " "
            right = interval(row.accuracy, row.accuracy_low, row.accuracy_high, 100, 1)
            speed = with_error(row.tokens_per_forward, row.tokens_per_forward_error, 2)
            value = clipped(printable(value_of(row)), 10)
            against = f"[{100 * row.to_best_low:.1f}, {100 * row.to_best_high:.1f}]"
            cost = f"{row.forwards_per_answer:>11.1f}{against:>16}{row.seconds:>6.1f} s"
            yield f"{''.join(marks)} {value:<10}{right:>20}{speed:>12}{cost}"
    yield ""


def curves_table(curves: "Sequence[Curve]") -> Table:
    """Return a table with a line per entry: its AUP, and its fastest set as accurate as the best."""
    from ..evaluate.comparing import value_of

    rows: list[list[str]] = []
    for curve in sorted(curves, key=lambda curve: -curve.rows[0].aup):
        row, figures = curve.fastest, ["none", "-", "-"]
        if row is not None:
            figures = [
                printable(value_of(row)),
                interval(row.accuracy, row.accuracy_low, row.accuracy_high, 100, 1),
                with_error(row.tokens_per_forward, row.tokens_per_forward_error, 2),
            ]
        rows.append([printable(curve.label), f"{curve.rows[0].aup:.1f}", *figures])
    return text_table(["strategy, rule", "AUP", "fastest at", "right, %", "tok/fwd"], rows, (0, 2))
