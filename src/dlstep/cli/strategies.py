"""`dlstep strategies`: list decoding strategies, or explain one."""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text

from .. import strategies
from ..core import Json
from ..core.options import Options, PluginGroup, searched
from ..engine.config import EngineConfig
from ..engine.option_rows import option_rows, paragraphs, parts_of
from ..engine.strategy_choice import embedded_models_for
from .options import Namespace, as_yaml, json_text, title_of

EXAMPLES = "dlstep strategies\ndlstep strategies dual_cache"


@dataclass(frozen=True)
class StrategiesCommand:
    """List decoding strategies and their options, or one strategy in detail."""

    name: str | None = None
    """A strategy, whose options are explained."""
    _: KW_ONLY
    json: bool = False
    """Print a JSON list, and nothing else, on stdout."""


COMMAND = StrategiesCommand


def strategy_row(name: str) -> Json:
    """Return the facts of a strategy; `model` is the embedded model trained for it, `options` include those of its rule."""
    value = strategies.PLUGINS.value(name)
    model = next(iter(embedded_models_for(EngineConfig(decoding_strategy=name))), None)
    return {"name": name, "summary": paragraphs(value)[0].splitlines()[0], "model": model, "options": flat(value)}


def flat(value: Options) -> Json:
    """Return the default of every option, including those of the rule."""
    return {row.name: row.default for part in reversed(list(parts_of(value))) for row in option_rows(part)}


def run(options: Namespace) -> int:
    """Print the list or a strategy."""
    return print_rows(strategies.PLUGINS, options, strategy_row, "--decoding_strategy NAME")


def print_rows(plugins: PluginGroup[Any], options: Namespace, row_of: Callable[[str], Json], use: str) -> int:
    """Print the list of strategies or rules, or the one that is named."""
    if options.name is not None:
        return print_options(plugins, options)
    rows, console = [*map(row_of, plugins.available())], Console()
    if options.json:
        print(json_text(rows))
        return 0
    for row in rows:
        model, carriers = row.get("model"), ", ".join(row.get("carriers", ()))
        remark = f", embedded model {model}" if model else f", for {carriers}" if carriers else ""
        console.print(Text.assemble((row["name"], "bold"), remark))
        defaults = "  ".join(f"{name}={default}" for name, default in row["options"].items())
        print_wrapped(console, (row["summary"], row.get("source", ""), defaults))
    console.print(Text(f"Use: dlstep generate PROMPT {use} --OPTION VALUE", "dim"))
    return 0


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
