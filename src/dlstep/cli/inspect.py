"""`dlstep strategies` and `dlstep replay`: what needs no model."""

import sys
from dataclasses import asdict, dataclass, fields
from inspect import getdoc
from textwrap import wrap

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import strategies
from ..config import EngineConfig
from ..core import Abort, Add, Adopt, Fail, Prune, Rebuild, ReplayDiverged, Samples, Trace
from ..core.words import counted
from ..matrix import Features, matrix
from ..resolve import embedded_models_for
from .json_text import json_text
from .options import new_parser


def strategies_parser() -> ArgumentParser:
    """The options of `dlstep strategies`."""
    options = new_parser(
        "dlstep strategies [options]",
        "List decoding strategies and their options, or what goes with what.",
        "dlstep strategies --json\ndlstep strategies --matrix",
    )
    options.add_argument("--matrix", action="store_true", help="Instead: strategies against models, and their features.")
    options.add_argument("--json", action="store_true", help="Print a JSON list, and nothing else, on stdout.")
    return options


SHORT = ("mode", "blocks", "exact", "shares", "cuts", "temp.", "carries")  # headings of the fields of `Features`


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A strategy as it is listed; `model` is the embedded model that it decodes."""

    name: str
    summary: str
    model: str | None
    options: dict[str, object]


def strategy_rows() -> list[StrategyRow]:
    """All strategies that can be named, with the embedded model made for each."""
    rows: list[StrategyRow] = []
    for name in strategies.available():
        chosen = strategies.load(name)
        module = sys.modules[chosen.__module__]
        summary = (getdoc(module) or getdoc(chosen) or "").splitlines()[0]
        model = next(iter(embedded_models_for(EngineConfig(decoding_strategy=name))), None)
        rows.append(StrategyRow(name, summary, model, {field.name: field.default for field in fields(chosen)}))
    return rows


def run_strategies(options: Namespace) -> int:
    """Print the list or the matrix."""
    if options.matrix:
        return print_matrix(as_json=options.json)
    rows = strategy_rows()
    if options.json:
        listed = ({"name": r.name, "summary": r.summary, "model": r.model, "options": r.options} for r in rows)
        print(json_text(list(listed)))
        return 0
    console = Console()
    width = min(console.width, 100)
    for row in rows:
        console.print(Text.assemble((row.name, "bold"), f", embedded model {row.model}" if row.model else ""))
        listed = "  ".join(f"{name}={value}" for name, value in row.options.items())
        for text in (row.summary, listed):
            lines = wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
            console.print(Text("\n".join(lines)))
    console.print(Text("Use: dlstep generate PROMPT --decoding_strategy NAME --OPTION VALUE", "dim"))
    return 0


def print_matrix(*, as_json: bool) -> int:
    """Strategy against model, and strategy against feature."""
    rows = matrix()
    if as_json:
        print(json_text([asdict(row) for row in rows]))
        return 0
    models = Table("a network trained as", "decodes with", "and not with", title="Models and strategies")
    for training in rows[0].models:
        able = [row.strategy for row in rows if not row.models[training]]
        unable = [row.strategy for row in rows if row.models[training]]
        models.add_row(training, ", ".join(able), ", ".join(unable))
    families = Table("family", "decodes with", "and not with", title="Families and strategies")
    for family in rows[0].families:
        able = [row.strategy for row in rows if not row.families[family]]
        unable = [row.strategy for row in rows if row.families[family]]
        families.add_row(family, ", ".join(able), ", ".join(unable))
    features = Table("strategy", *SHORT, title="What strategies do by default")
    for row in rows:
        values = asdict(row.features).values()
        features.add_row(row.strategy, *(("no", "yes")[v] if isinstance(v, bool) else str(v) for v in values))
    console = Console()
    console.print(models, families, features)
    for paragraph in (getdoc(Features) or "").split("\n\n"):
        console.print(Text(f"{' '.join(paragraph.split())}\n"))
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
    kinds = {"add": Add, "adopt": Adopt, "abort": Abort, "fail": Fail, "rebuild": Rebuild, "prune": Prune}
    counts = {name: sum(isinstance(event, kind) for event in trace.events) for name, kind in kinds.items()}
    steps = sum(isinstance(event, Samples) for event in trace.events)
    try:
        state, divergence = trace.replay(), None
    except ReplayDiverged as error:
        state, divergence = None, str(error)
    if options.json:
        print(json_text({"steps": steps, **counts, "divergence": divergence}))
    elif state is None:
        print(f"diverged: {divergence}")
    else:
        live = len(state.running) + len(state.waiting)
        known = counted(counts["add"] + counts["adopt"], "request")
        print(f"replayed {counted(steps, 'step')} of {known}, {live} of them unfinished: every plan is as recorded")
    return 0 if state is not None else 1
