"""`dlstep compare`: accuracy against speed of strategies and rules on tasks."""

import json
import shlex
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..core.checks import short
from ..engine.config import EngineConfig
from ..text.words import printable
from .eval import ENGINE_FIELDS, report_failures
from .json_text import json_text
from .options import add_options, field_help, new_parser
from .parser import ArgumentParser, Namespace

if TYPE_CHECKING:
    from ..evaluate.options import EvalOptions

EXAMPLES = """
    dlstep compare                                    every rule on a grid of blocks and on a canvas, embedded models
    dlstep compare --strategies all --rules threshold --problems 200 --out strategies
    dlstep compare --rules [threshold,quota,./my_rule.py] --plot rules.png
    dlstep compare --strategies multi_bd --rules threshold --grid '{"accept_threshold": [0.5, 0.9], "buffer_size": [1, 4]}'
    dlstep compare --model /models/sdar-1.7b --tasks [gsm8k,minerva_math500] --data /data --out sdar
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
    "grid",
)  # fixed, or set by other options
OWN_OF_ENGINE = ("decoding_strategy", "sampling_mode", "seed", "quantization")
TEXTS, PICTURE = ("rows.json", "rows.csv", "report.html"), "frontier.png"


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
    out = (
        f"Write {', '.join((*TEXTS, PICTURE))} into this folder, and the answers, from which an interrupted comparison resumes."
    )
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
    from ..evaluate.comparing import ComparisonRow, compared, comparison_parts, entries
    from ..evaluate.items import read_problems
    from ..evaluate.options import grid_of
    from ..evaluate.pictures import rules_figure, save, tasks_figure
    from ..evaluate.report import comparison_page
    from ..evaluate.runner import public_of
    from ..evaluate.table import as_csv, print_parts
    from ..views.figures import check_plot
    from ..views.progress_bars import counting_bar

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
    public = public_of(chosen)
    problems = sum(map(len, read_problems(chosen).values())) + (public.count if public else 0)
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
    with counting_bar(problems * sum(len(entry.grid) for entry in found), enabled=options.progress) as show:
        rows = compared(found, chosen, out, public, show=show)
    if options.plot is not None:
        save(rules_figure(rows), Path(options.plot))
    notes = [CAUTION] if options.model is None else []
    as_json = json_text([asdict(row) for row in rows])
    if out is not None:
        page = comparison_page(rows, command=command_of(options), left_out=left_out, notes=notes)
        for name, text in zip(TEXTS, (as_json + "\n", as_csv(rows, ComparisonRow), page), strict=True):
            (out / name).write_text(text, encoding="utf-8")
        save(tasks_figure(rows), out / PICTURE)
    if options.json:
        print(as_json)
    else:
        console = Console()
        print_parts([*comparison_parts(rows)], console)
        for line in (*MARKS, *notes):
            console.print(line, highlight=False)
    return report_failures(sum(row.failed for row in rows), next((row.error for row in rows if row.error), ""))


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
