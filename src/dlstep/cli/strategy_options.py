"""Flags for the options of the strategy and rule named on the command line or in its YAML file."""

import json
from argparse import SUPPRESS
from collections.abc import Iterator, Sequence as Items
from pathlib import Path

from .. import rules, strategies, tiny
from ..core import Options, Rule, Strategy
from ..core.plugins import searched
from ..engine.config import EngineConfig
from ..engine.option_help import option_rows, parts_of
from ..engine.resolve import base_of, chosen, embedded_facts
from .options import ENGINE_FIELDS, SAMPLING_FIELDS, add_config_option
from .parser import ArgumentParser, Namespace
from .yaml_file import Owners

NAMES = ("decoding_strategy", "sampling_mode", "rule", "inner", "model")


def title_of(value: Options) -> str:
    """Return the heading for the options of a strategy or a rule."""
    kind, shelf = ("rule", rules.SHELF) if isinstance(value, Rule) else ("strategy", strategies.SHELF)
    return f"{kind} {shelf.name_of(type(value)) or type(value).__name__}"


def everything() -> Iterator[Options]:
    """Yield every built-in strategy and rule, with default options."""
    yield from (strategies.SHELF.value(name) for name in strategies.own())
    yield from (rules.SHELF.value(name) for name in rules.own())


def said(arguments: Items[str], owners: Owners) -> Namespace:
    """Return the values of the options that determine which other options exist."""
    parser = ArgumentParser("", partial=True)
    for name in NAMES:
        parser.add_argument(f"--{name}", type=str | None)
    add_config_option(parser, owners)
    return parser.parse_known_args(arguments, Namespace())[0]


def own_strategy(model: str | None) -> str | None:
    """Return the strategy that a model declares, or None if only loading the checkpoint can tell."""
    embedded = embedded_facts()
    if model is None or model in embedded:
        return embedded[model or tiny.names()[0]]["decoding_strategy"]
    try:
        facts = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
        name = facts["dlstep"]["decoding_strategy"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # loading the checkpoint reports the problem
        return None
    return name if isinstance(name, str) and strategies.is_known(name) else None


def strategy_of(arguments: Items[str], owners: Owners) -> Strategy | None:
    """Return the requested strategy with the requested rule, or None if it depends on the
    checkpoint.

    Modules are also searched in the current folder.
    """
    told = said(arguments, owners)
    config = EngineConfig(decoding_strategy=told.decoding_strategy, sampling_mode=told.sampling_mode)
    with searched(Path.cwd()):
        asked = chosen(config, own_strategy(told.model))
        held = rules.with_values({name: told[name] for name in rules.HOLDERS if told[name] is not None})
        return None if asked is None else base_of(asked, held)


def add_strategy_options(parser: ArgumentParser, arguments: Items[str]) -> None:
    """Add flags for the options of the requested strategy and rule, and hidden ones for all others.

    The hidden flags allow a clear error for an option of another strategy. Raises ValueError for an
    unknown strategy.
    """
    strategy = strategy_of(arguments, parser.owners)
    taken = {field.name for field in (*ENGINE_FIELDS, *SAMPLING_FIELDS)}
    shown = list(parts_of(strategy)) if strategy is not None else []
    added: set[str] = set()
    for part in (*shown, *everything()):
        group = parser.add_argument_group(title_of(part)) if part in shown else parser
        for row in option_rows(part):
            if row.name in added:
                continue
            if row.name in taken:
                cls = type(part).__name__
                raise ValueError(f"{cls}.{row.name} has the name of another option: give the field another name")
            group.add_argument(f"--{row.name}", type=row.hint, default=SUPPRESS, help=row.line() if part in shown else SUPPRESS)
            added.add(row.name)
