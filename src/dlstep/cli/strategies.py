"""`dlstep strategies`: list decoding strategies, explain one, or show the compatibility matrix."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from inspect import getdoc
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import strategies
from ..core.options import Options, PluginGroup, searched
from ..engine.compatibility import Features, MatrixRow, matrix
from ..engine.config import EngineConfig
from ..engine.option_rows import option_rows, paragraphs, parts_of
from ..engine.strategy_choice import embedded_models_for
from .options import Namespace, as_yaml, json_text, title_of

EXAMPLES = "dlstep strategies dual_cache\ndlstep strategies --matrix"
SHORT = ("mode", "blocks", "exact", "shares", "cuts", "temp.", "carries")  # headings for the fields of `Features`


@dataclass(frozen=True)
class StrategiesCommand:
    """List decoding strategies and their options, one strategy in detail, or the compatibility matrix."""

    name: str | None = None
    """A strategy, whose options are explained."""
    _: KW_ONLY
    matrix: bool = False
    """Instead: strategies against models, and their features."""
    json: bool = False
    """Print a JSON list, and nothing else, on stdout."""


COMMAND = StrategiesCommand


def strategy_row(name: str) -> dict[str, Any]:
    """Return the facts of a strategy; `model` is the embedded model trained for it, `options` include those of its rule."""
    value = strategies.PLUGINS.value(name)
    model = next(iter(embedded_models_for(EngineConfig(decoding_strategy=name))), None)
    return {"name": name, "summary": paragraphs(value)[0].splitlines()[0], "model": model, "options": flat(value)}


def flat(value: Options) -> dict[str, object]:
    """Return the default of every option, including those of the rule."""
    return {row.name: row.default for part in reversed(list(parts_of(value))) for row in option_rows(part)}


def run(options: Namespace) -> int:
    """Print the list, a strategy or the matrix."""
    if options.name is not None:
        if options.matrix:
            raise ValueError("--matrix is about all strategies: leave the name out")
        return print_options(strategies.PLUGINS, options)
    if options.json:
        rows = [asdict(row) for row in matrix()] if options.matrix else [*map(strategy_row, strategies.available())]
        print(json_text(rows))
    elif options.matrix:
        print_matrix(matrix())
    else:
        for row in map(strategy_row, strategies.available()):
            print_entry(row["name"], f"embedded model {row['model']}" if row["model"] else "", [row["summary"]], row["options"])
        Console().print(Text("Use: dlstep generate PROMPT --decoding_strategy NAME --OPTION VALUE", "dim"))
    return 0


def print_entry(name: str, remark: str, texts: Iterable[str], options: Mapping[str, object]) -> None:
    """Print heading, remark, texts and options of a strategy or a rule."""
    console = Console()
    console.print(Text.assemble((name, "bold"), f", {remark}" if remark else ""))
    print_wrapped(console, (*texts, "  ".join(f"{option}={default}" for option, default in options.items())))


def print_wrapped(console: Console, texts: Iterable[str], indent: str = "  ") -> None:
    """Print indented paragraphs, in at most 100 columns."""
    for text in filter(None, texts):
        lines = wrap(
            as_yaml(text), min(console.width, 100), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        console.print(Text("\n".join(lines)))


def print_options(plugins: PluginGroup[Any], options: Namespace) -> int:
    """Print every option of the named strategy or rule and of the values that it contains: range, default, help."""
    with searched(Path.cwd()):
        parts = list(parts_of(plugins.value(options.name)))
    if options.json:
        rows = [row for part in parts for row in option_rows(part)]
        facts = [{"name": row.name, "default": row.default, "allowed": row.allowed, "help": row.help} for row in rows]
        print(json_text(facts))
        return 0
    console = Console()
    for part in parts:
        console.print(Text(title_of(part), "bold"))
        print_wrapped(console, (" ".join(text.split()) for text in paragraphs(part)))
        for row in option_rows(part):
            console.print(Text(f"  --{row.name}", "bold"))
            print_wrapped(console, (row.line(),), indent="      ")
    return 0


def print_matrix(rows: list[MatrixRow]) -> None:
    """Print which strategies fit which models, and the features of each strategy."""
    models = _fitting("Models and strategies", "a network trained as", {row.strategy: row.models for row in rows})
    families = _fitting("Families and strategies", "family", {row.strategy: row.families for row in rows})
    features = Table("strategy", *SHORT, title="What strategies do by default")
    for row in rows:
        values = asdict(row.features).values()
        features.add_row(row.strategy, *(("no", "yes")[v] if isinstance(v, bool) else str(v) for v in values))
    console = Console()
    console.print(models, families, features)
    for paragraph in (getdoc(Features) or "").split("\n\n"):
        console.print(Text(f"{' '.join(paragraph.split())}\n"))


def _fitting(title: str, heading: str, faults: Mapping[str, Mapping[str, str | None]]) -> Table:
    """Return a table of fitting strategies. `faults` gives the reason against each; None if it fits."""
    table = Table(heading, "decodes with", "and not with", title=title)
    for name in next(iter(faults.values())):
        names = [strategy for strategy, against in faults.items() if not against[name]]
        table.add_row(name, ", ".join(names), ", ".join(strategy for strategy in faults if strategy not in names))
    return table
