"""`dlstep strategies` and `dlstep replay`: what needs no model."""

import json
import sys
from dataclasses import dataclass, fields
from inspect import getdoc

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.table import Table

from .. import strategies
from ..config import embedded_models
from ..core import ReplayDiverged, Trace
from ..core.trace import Abort, Add, Rebuild
from .options import new_parser


def strategies_parser() -> ArgumentParser:
    """The options of `dlstep strategies`."""
    options = new_parser(
        "dlstep strategies [options]", "List decoding strategies and their options.", "dlstep strategies --json"
    )
    options.add_argument("--json", action="store_true", help="Print a JSON list, and nothing else, on stdout.")
    return options


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A strategy as it is listed."""

    name: str
    summary: str
    model: str | None
    options: dict[str, object]


def strategy_rows() -> list[StrategyRow]:
    """All strategies that can be named, with the embedded model made for each."""
    models = {strategies.load(declared): name for name, declared in reversed(embedded_models().items())}
    rows: list[StrategyRow] = []
    for name in strategies.available():
        chosen = strategies.load(name)
        module = sys.modules[chosen.__module__]
        summary = (getdoc(module) or getdoc(chosen) or "").splitlines()[0]
        rows.append(StrategyRow(name, summary, models.get(chosen), {field.name: field.default for field in fields(chosen)}))
    return rows


def run_strategies(options: Namespace) -> int:
    """Print the list."""
    rows = strategy_rows()
    if options.json:
        listed = ({"name": r.name, "summary": r.summary, "model": r.model, "options": r.options} for r in rows)
        print(json.dumps(list(listed)))
        return 0
    table = Table("strategy", "what it does", "options and defaults", "embedded model", show_lines=True)
    for row in rows:
        table.add_row(row.name, row.summary, "\n".join(f"{k}={v}" for k, v in row.options.items()), row.model or "none")
    Console().print(table)
    return 0


def replay_parser() -> ArgumentParser:
    """The options of `dlstep replay`."""
    options = new_parser(
        "dlstep replay FILE [options]",
        "Plan every step of a saved trace anew, compare with what was recorded, and commit the recorded samples.",
        "dlstep replay decode.jsonl",
    )
    options.add_argument("file", type=str, metavar="FILE", help="What Trace.save wrote.")
    options.add_argument("--json", action="store_true", help="Print a JSON object, and nothing else, on stdout.")
    return options


def run_replay(options: Namespace) -> int:
    """Print what was replayed, or the first divergence; 1 for the latter."""
    trace = Trace.load(options.file)
    kinds = {"add": Add, "abort": Abort, "rebuild": Rebuild}
    counts = {name: sum(isinstance(event, kind) for event in trace.events) for name, kind in kinds.items()}
    steps = len(trace.events) - sum(counts.values())
    try:
        state, divergence = trace.replay(), None
    except ReplayDiverged as error:
        state, divergence = None, str(error)
    if options.json:
        print(json.dumps({"steps": steps, **counts, "divergence": divergence}))
    elif state is None:
        print(f"diverged: {divergence}")
    else:
        live = len(state.running) + len(state.waiting)
        print(f"replayed {steps} steps of {counts['add']} requests, {live} of them unfinished: every plan is as recorded")
    return 0 if state is not None else 1
