"""`dlstep compare`: accuracy against speed of strategies and rules on tasks."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from .. import strategies
from ..core import PositiveInt, short
from ..engine.config import ENGINE_FIELDS, EngineConfig
from ..text.words import printable
from .eval import report_failures
from .options import OF_SESSIONS, OF_STRATEGY, ArgumentParser, Namespace, json_text

if TYPE_CHECKING:
    from ..evaluate import EvalOptions

EXAMPLES = """dlstep compare           every rule on blocks and on a canvas, embedded models
dlstep compare --strategies all --rules threshold --problems 200 --out folder
dlstep compare --rules [threshold,quota,./my_rule.py] --plot rules.png
dlstep compare --strategies multi_bd --rules threshold \\
  --grid '{"accept_threshold": [0.5, 0.9], "buffer_size": [1, 4]}'
dlstep compare --model /models/sdar-1.7b --tasks [gsm8k,minerva_math500]
dlstep compare --model /models/sdar-1.7b --questions mine.jsonl
dlstep compare --rules threshold --quantization fp8"""
CAUTION = (
    "Rankings on tiny models do not carry over to large ones: these write a few dozen tokens in blocks of 8. Use --model with "
    "--tasks or --questions for yours."
)
MARKS = (
    "* on the frontier: nothing is as good in both and better in one",
    "= as right as the best, as far as these problems can tell",
)
OWN_OF_EVAL = ("tasks", "out", "dataset_limit", "problem_seed", "grid")  # fixed, or set by other options
OWN_OF_ENGINE = (*OF_SESSIONS, *OF_STRATEGY, "decoding_strategy", "sampling_mode", "seed")


@dataclass(frozen=True, kw_only=True)
class CompareCommand:
    """Compare strategies and decoding rules on tasks, each over values of an option."""

    rules: tuple[str, ...] = ("all",)
    """all, or names, dotted paths and .py files of rules, as [threshold,./my_rule.py]."""
    strategies: list[str] | str | None = None
    """all, or strategies by name, path or file. A strategy without a rule is compared unchanged; one that the model cannot be
    decoded with is left out. null: multi_bd and dual_cache, or the one that --model is decoded with."""
    grid: Any = None
    """Options to vary, as '{"accept_threshold": [0.5, 0.9]}', every combination; null: what each rule or strategy names."""
    tasks: list[str] | str | None = None
    """Tasks, as those of `dlstep eval`. null: shells, or questions where a file of them is given."""
    problems: PositiveInt = 100
    """Most problems of each task, the first ones."""
    seed: int = 0
    """Seed of the stories, and of samples."""
    plot: Path | None = None
    """Plot the curves of each task and their frontier into this file."""
    out: Path | None = None
    """Write rows.json and the answers into this folder. An interrupted comparison resumes from it."""
    json: bool = False
    """Print a JSON list of rows, and nothing else, on stdout."""
    progress: bool = True
    """Draw a progress bar where stderr is a terminal."""


COMMAND = CompareCommand


def add_options(parser: ArgumentParser) -> None:
    """Add the options of the evaluation and of the engine."""
    from ..evaluate import EvalOptions

    parser.add_options(EvalOptions, "evaluation", without=OWN_OF_EVAL)
    parser.add_options(EngineConfig, "engine", without=OWN_OF_ENGINE)


def run(options: Namespace) -> int:
    """Measure, then print, plot and write. Return 1 if a request was rejected or failed, else 0."""
    from ..engine.json_lines import check_free
    from ..evaluate.comparing import compared, comparison_parts, entries
    from ..evaluate.options import grid_of
    from ..evaluate.pictures import check_plot, tasks_figure
    from ..evaluate.runner import problems_of, public_of
    from ..evaluate.table import print_parts
    from ..views.progress_bars import counting_bar

    chosen = evaluation_of(options)
    out = options.out
    if out is not None:
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {short(str(out))} is a file, and must be a folder: --json prints the rows")
        check_free(out)
    if options.plot is not None:
        check_plot(options.plot)
    grid_of(options.grid)  # raises before a model is loaded
    public = public_of(chosen)
    problems = sum(facts["count"] for facts in problems_of(chosen, public).values())
    engine = {name: options[name] for name in ENGINE_FIELDS if name not in OWN_OF_ENGINE}
    carried = [options.strategies] if isinstance(options.strategies, str) else options.strategies
    found, left_out = entries(
        None if options.rules == ["all"] else options.rules,
        strategies.available() if carried == ["all"] else carried,
        grid=options.grid,
        **engine,
        seed=options.seed,
    )
    for reason in left_out:
        print(f"dlstep: left out: {printable(reason)}", file=sys.stderr)
    with counting_bar(problems * sum(len(entry.grid) for entry in found), enabled=options.progress) as show:
        rows = compared(found, chosen, out, public, show=show)
    if options.plot is not None:
        tasks_figure(rows).savefig(options.plot, dpi=110)
    notes = [CAUTION] if options.model is None else []
    as_json = json_text([asdict(row) for row in rows])
    if out is not None:
        (out / "rows.json").write_text(as_json + "\n", "utf-8")
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
    from ..evaluate import EvalOptions

    named = [options.tasks] if isinstance(options.tasks, str) else options.tasks
    own = {"tasks": named or ["shells" if options.questions is None else "questions"]}
    own |= {"dataset_limit": options.problems, "problem_seed": options.seed}
    kept = {name: value for name, value in vars(options).items() if name not in ("out", "grid")}
    return Namespace(**kept | own).of(EvalOptions)
