"""What several commands have: options of the engine, of a request, of the strategy and its rule, and JSON as output."""

import json
import math
import re
from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from .. import rules, strategies, tiny
from ..core import Options, Rule, SamplingParams
from ..core.checks import short
from ..core.options import searched
from ..engine.config import EngineConfig, base_of, chosen, embedded_facts, engine_config
from ..engine.option_help import option_rows, parts_of
from .parser import ArgumentParser, Namespace

# Strategy options have separate flags that replace these fields.
OF_STRATEGY = ("thresholds", "strategy_options", "buffer_policy")
# Pinned tokens may be texts, so `--pinned` is separate.
OF_REQUEST = (*OF_STRATEGY, "pinned")
NAMES = ("decoding_strategy", "sampling_mode", "rule", "inner", "model")  # options that determine which other options exist
PINS = '{"5": 42, "9": " shells"}'


def command_parser(command: str, owner: Any, examples: str) -> ArgumentParser:
    """Return the parser of a command with the options in the fields of `owner`, whose docstring is the summary."""
    parser = ArgumentParser(f"dlstep {command}", owner.__doc__, examples)
    parser.add_own(owner)
    return parser


def add_config_option(parser: ArgumentParser) -> None:
    """Add `--config FILE.yaml` and `--print_config`."""
    parser.add_argument(
        "--config",
        action="config",
        default=SUPPRESS,
        metavar="FILE",
        help="YAML file of options by their names, or in sections like `engine:`; options after it override it.",
    )
    printed = "Print all options as YAML, and stop."
    parser.add_argument("--print_config", hint=bool, nargs=0, default=SUPPRESS, help=printed)


def engine_of(options: Namespace, *others: Any, **changes: Any) -> EngineConfig:
    """Return the engine's configuration: all options except the fields of the dataclasses `others`, and `changes`."""
    left_out = {field.name for owner in others for field in fields(owner)}
    return engine_config({name: value for name, value in vars(options).items() if name not in left_out} | changes)


def pins_of(pins: Any) -> dict[int, Any]:
    """Return the tokens of `--pinned` by offset, with JSON's text keys converted to int.

    Raises ValueError if it is not a mapping of offsets.
    """
    if not isinstance(pins, dict) or not all(re.fullmatch("-?[0-9]{1,18}", str(offset)) for offset in pins):
        raise ValueError(f"--pinned takes offsets in the answer with an id or a text each, like '{PINS}', got {short(pins)}")
    return {int(offset): token for offset, token in pins.items()}


def sampling_params(options: Namespace) -> SamplingParams:
    """Return the request options. Raises ValueError for values out of range."""
    values = {field.name: options[field.name] for field in fields(SamplingParams) if field.name not in OF_REQUEST}
    if values["max_tokens"] is None:
        del values["max_tokens"]
    if isinstance(values["json_schema"], str):
        values["json_schema"] = schema_in(values["json_schema"])
    return SamplingParams(**values)


def schema_in(source: str) -> str:
    """Return the text of the file at `source`, or `source` itself if it begins like a JSON object.

    Raises ValueError if the file cannot be read.
    """
    try:
        return source if source.lstrip().startswith("{") else Path(source).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--json_schema takes JSON text or the path of a JSON file; the file {short(source)} cannot be read: {error}"
        ) from error


def title_of(value: Options) -> str:
    """Return the heading for the options of a strategy or a rule."""
    kind, plugins = ("rule", rules.PLUGINS) if isinstance(value, Rule) else ("strategy", strategies.PLUGINS)
    return f"{kind} {plugins.name_of(type(value)) or type(value).__name__}"


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


def requested_parts(command: str, arguments: Sequence[str]) -> list[Options]:
    """Return the requested strategy and rule, whose options exist; none if they depend on the checkpoint.

    Modules are also searched in the current folder.
    """
    parser = ArgumentParser(command, partial=True)
    for name in NAMES:
        parser.add_argument(f"--{name}", hint=str | None)
    add_config_option(parser)
    requested = parser.parse_known_args(arguments, Namespace())[0]
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
    taken = {field.name for owner in (EngineConfig, SamplingParams) for field in fields(owner)}
    added: set[str] = set()
    for part in requested_parts(parser.prog, arguments):
        group = parser.add_argument_group(title_of(part))
        for row in option_rows(part):
            if row.name in taken:
                cls = type(part).__name__
                raise ValueError(f"{cls}.{row.name} has the name of another option: give the field another name")
            if row.name not in added:
                group.add_argument(f"--{row.name}", hint=row.hint, default=SUPPRESS, help=row.line())
                added.add(row.name)
    classes = [plugins.load(name) for plugins in (strategies.PLUGINS, rules.PLUGINS) for name in plugins.own()]
    for name in dict.fromkeys(field.name for cls in classes for field in fields(cls)):
        if name not in added:
            parser.add_argument(f"--{name}", hint=Any, default=SUPPRESS, help=SUPPRESS)


def json_text(value: object) -> str:
    """Return `value` as JSON, with null for numbers that are not finite, which JSON cannot represent."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case _:
            return value
