"""Flags for the options of the strategy and rule named on the command line or in its YAML file."""

import json
from argparse import SUPPRESS
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import rules, strategies, tiny
from ..core import Options, Rule
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
    kind, plugins = ("rule", rules.PLUGINS) if isinstance(value, Rule) else ("strategy", strategies.PLUGINS)
    return f"{kind} {plugins.name_of(type(value)) or type(value).__name__}"


def everything() -> Iterator[Options]:
    """Yield every built-in strategy and rule, with default options."""
    yield from (strategies.PLUGINS.value(name) for name in strategies.own())
    yield from (rules.PLUGINS.value(name) for name in rules.own())


def requested_options(arguments: Sequence[str], owners: Owners) -> Namespace:
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


def requested_parts(arguments: Sequence[str], owners: Owners) -> list[Options]:
    """Return the requested strategy and rule, whose options exist; none if they depend on the checkpoint.

    Modules are also searched in the current folder.
    """
    requested = requested_options(arguments, owners)
    config = EngineConfig(decoding_strategy=requested.decoding_strategy, sampling_mode=requested.sampling_mode)
    with searched(Path.cwd()):
        base = chosen(config, own_strategy(requested.model))
        holders = rules.with_values({name: requested[name] for name in rules.HOLDERS if requested[name] is not None})
        if base is None:
            return []
        try:
            return list(parts_of(base_of(base, holders)))
        except ValueError:  # the rule may need another option, which is parsed next
            return [base_of(base, {}), *holders.values()]


def add_strategy_options(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Add flags for the options of the requested strategy and rule, and hidden ones for all others.

    The hidden flags allow a clear error for an option of another strategy. Raises ValueError for an
    unknown strategy.
    """
    taken = {field.name for field in (*ENGINE_FIELDS, *SAMPLING_FIELDS)}
    shown = requested_parts(arguments, parser.owners)
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
