"""Dataclasses as command-line options: one flat name per field, the same as in a YAML file."""

import json
import re
from argparse import SUPPRESS
from dataclasses import MISSING, Field, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ..core import SamplingParams
from ..core.checks import short
from ..engine.config import EngineConfig
from ..engine.option_help import field_help
from .parser import ArgumentParser, Namespace
from .yaml_file import Owners

# `seed` is the request's option: with a single caller, the engine's seed has no additional effect.
# Strategy options have separate flags that replace these fields. Pinned tokens may be texts, so
# `--pinned` is separate.
OF_STRATEGY = ("thresholds", "strategy_options", "buffer_policy")
ENGINE_FIELDS = tuple(field for field in fields(EngineConfig) if field.name not in ("seed", *OF_STRATEGY))
PINS = '{"5": 42, "9": " shells"}'
SAMPLING_FIELDS = tuple(field for field in fields(SamplingParams) if field.name not in (*OF_STRATEGY, "pinned"))
LARGEST_SCHEMA = 1 << 20  # bytes


def new_parser(usage: str, summary: str, examples: str) -> ArgumentParser:
    """Return a parser that raises instead of exiting, with cleaned-up examples."""
    return ArgumentParser(usage, summary, cleandoc(examples))


SHORT = {"tensor_parallel_size": ("--tp",)}  # names that other servers use


def add_options(parser: ArgumentParser, title: str, owner: type, chosen: tuple[Field[Any], ...], texts: dict[str, str]) -> None:
    """Add an option for each of the `chosen` fields of a dataclass."""
    group = parser.add_argument_group(title)
    hints = get_type_hints(owner)  # without the ranges: the dataclass checks them, with better messages
    for field in chosen:
        hint = hints[field.name]
        default = field.default
        if get_origin(hint) is tuple:
            item = get_args(hint)[0]
            hint = list[item] | item  # also one item without brackets
            default = [] if default is MISSING else list(default)
        if field.name == "decoding_strategy":
            hint = str | None
        if field.name == "max_tokens":
            hint, default = int | None, None  # None stands for the model's default
        if field.name == "json_schema":
            hint = str | dict[str, Any] | None
        assert default is not MISSING, f"{owner.__name__}.{field.name} has no default"
        group.add_argument(f"--{field.name}", *SHORT.get(field.name, ()), type=hint, default=default, help=texts[field.name])


def add_config_option(parser: ArgumentParser, owners: Owners | None = None) -> None:
    """Add `--config FILE.yaml` and `--print_config`; with `owners`, the file's options are in sections."""
    parser.owners = owners or {}
    parser.add_argument(
        "--config",
        action="config",
        default=SUPPRESS,
        metavar="FILE",
        help="YAML file of options by their names, or in sections like `engine:`; options after it override it.",
    )
    printed = "Print all options as YAML, and stop."
    parser.add_argument("--print_config", action="print", nargs=0, default=SUPPRESS, help=printed)


def add_engine_options(parser: ArgumentParser) -> None:
    """Add the options of the engine."""
    add_options(parser, "engine", EngineConfig, ENGINE_FIELDS, field_help(EngineConfig))


def add_sampling_options(parser: ArgumentParser) -> None:
    """Add the options of a request."""
    schema = "A JSON schema that the answer conforms to: a JSON file, or JSON text. In an option file, also a mapping."
    add_options(parser, "sampling", SamplingParams, SAMPLING_FIELDS, field_help(SamplingParams) | {"json_schema": schema})
    parser.add_argument(
        "--pinned",
        type=Any,  # JSON has no integer keys
        default=None,
        metavar="JSON",
        help=f"Pinned tokens: offsets in the answer, each with an id or a text, like '{PINS}'.",
    )


def engine_options(options: Namespace, others: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of the engine and the strategy: all except those of a request and `others`."""
    left_out = {*others, *(field.name for field in SAMPLING_FIELDS)}
    return {name: value for name, value in vars(options).items() if name not in left_out}


def pins_of(options: Namespace) -> dict[int, Any]:
    """Return the tokens of `--pinned` by offset, with JSON's text keys converted to int.

    Raises ValueError if it is not a mapping of offsets.
    """
    pins = options.pinned
    if not isinstance(pins, dict) or not all(re.fullmatch("-?[0-9]{1,18}", str(offset)) for offset in pins):
        raise ValueError(f"--pinned takes offsets in the answer with an id or a text each, like '{PINS}', got {short(pins)}")
    return {int(offset): token for offset, token in pins.items()}


def sampling_params(options: Namespace) -> SamplingParams:
    """Return the request options. Raises ValueError for values out of range."""
    values: dict[str, Any] = {field.name: options[field.name] for field in SAMPLING_FIELDS}
    if values["max_tokens"] is None:
        del values["max_tokens"]
    for name in ("stop", "stop_token_ids", "canvas", "choice"):
        values[name] = tuple(values[name]) if isinstance(values[name], list) else (values[name],)
    if isinstance(values["json_schema"], str):
        values["json_schema"] = schema_in(values["json_schema"])
    return SamplingParams(**values)


def schema_in(source: str) -> Any:
    """Return the JSON schema in the file at `source`, or in `source` itself if it begins like a JSON object.

    Raises ValueError if the file cannot be read, or if the schema is not a JSON object.
    """
    text, where = source, "the text"
    try:
        if not source.lstrip().startswith("{"):
            where = f"the file {short(source)}"
            with Path(source).open("rb") as file:
                content = file.read(LARGEST_SCHEMA + 1)
            if len(content) > LARGEST_SCHEMA:
                raise ValueError(f"it has more than {LARGEST_SCHEMA} bytes")
            text = content.decode("utf-8-sig")
        schema = json.loads(text)
        if not isinstance(schema, dict) or not schema:
            raise ValueError('it is not an object with keywords, like {"type": "object"}')
        return schema
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"--json_schema takes JSON text or the path of a JSON file; {where} cannot be read: {reason}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--json_schema: {where} holds no JSON schema: {error}") from error
