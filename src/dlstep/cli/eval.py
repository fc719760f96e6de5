"""`dlstep eval`: accuracy and speed of a model, a strategy and its options on tasks, from one YAML file."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from rich.console import Console

from ..engine.config import EngineConfig, engine_config
from ..text.words import counted, printable
from .options import OF_STRATEGY, ArgumentParser, Namespace, engine_options, json_text

EXAMPLES = """dlstep eval                     500 problems of the embedded task
dlstep eval --config configs/sdar.multi_bd.yaml --model org/name --data /data
dlstep eval --model org/name --tasks [gsm8k,humaneval] --out llada
dlstep eval --grid '{"accept_threshold": [0.5, 0.9]}' --dataset_limit 100
dlstep eval --decoding_strategy d2f --out d2f
dlstep report d2f --against dlstep-eval     wrong answers and a comparison"""
TABLE = "table.json"


@dataclass(frozen=True, kw_only=True)
class EvalCommand:
    """Accuracy and speed on tasks: dlstep's own, and those of lm_eval. Run it again to resume. See docs/evaluation.md."""

    grid: Any = None
    """Options of the strategy to try, as '{"accept_threshold": [0.5, 0.9]}'; every combination answers every problem."""
    engine_timeout: Annotated[float, Interval(ge=1.0, le=1e6)] = 360.0
    """Seconds that the first forward pass may take, including compilation, before the process prints its stacks and ends. For
    later passes, the limit is the largest of 60 seconds, a sixth of this option and ten times the slowest pass, but at most
    this option."""
    json: bool = False
    """Print the table as JSON, and nothing else, on stdout."""
    progress: bool = True
    """Draw a progress bar where stderr is a terminal."""


COMMAND = EvalCommand


def add_options(parser: ArgumentParser) -> None:
    """Add the options of the evaluation and of the engine."""
    from ..evaluate import EvalOptions

    parser.add_options(EvalOptions, "evaluation", without=("grid",))
    parser.add_options(EngineConfig, "engine", without=OF_STRATEGY)


def run(options: Namespace) -> int:
    """Answer, score, write and print the table. Return 1 if a request was rejected or failed, else 0."""
    from ..batch.checkpoint import RUN
    from ..engine.json_lines import check_free
    from ..engine.loader import load_engine
    from ..engine.step_limit import StepLimit
    from ..evaluate import EvalOptions
    from ..evaluate.checkpoint import failure
    from ..evaluate.runner import evaluate, problems_of, public_of
    from ..evaluate.table import lines_of, print_parts, run_parts
    from ..views.progress_bars import counting_bar

    chosen = options.of(EvalOptions)
    engine = engine_options(options, EvalOptions, EvalCommand)
    # Everything that may be refused comes before loading the engine, which may take minutes.
    check_free(Path(chosen.out))
    public = public_of(chosen)
    total = sum(facts["count"] for facts in problems_of(chosen, public).values())
    given_options = {"engine": engine, "eval": asdict(chosen) | {"grid": options.grid}}
    with counting_bar(total * len(chosen.grid), enabled=options.progress) as show:
        loaded, limit = load_engine(engine_config(engine)), StepLimit(options.engine_timeout)
        result = evaluate(loaded, chosen, public, given_options=given_options, show=show, limit=limit)
    lines = lines_of(result)
    rows = json_text([asdict(line) for line in lines])
    (result.folder / TABLE).write_text(rows + "\n", "utf-8")
    if options.json:
        print(rows)
    else:
        print_parts([*run_parts(lines)], Console())
        print(f"model, strategy, prompts and all other settings: {result.folder / RUN}")
    failed = [failure(row) for row in result.rows.values() if row["error"]]
    return report_failures(len(failed), *failed[:1])


def report_failures(failed: int, reason: str = "") -> int:
    """Report how many answers failed. Return 1 if one did."""
    if failed:
        print(f"dlstep: {counted(failed, 'answer')} failed, the first is {printable(reason)}", file=sys.stderr)
    return int(bool(failed))
