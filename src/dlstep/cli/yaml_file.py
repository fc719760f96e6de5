"""Restricted YAML for options: plain values without references or tags; no name may import code.

A file may group its options in sections: `engine:` for every command with an engine, the others for
one command each.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..core.checks import short
from ..engine.config import ENGINE_FIELDS
from ..engine.option_errors import meant

LONGEST = 1 << 20  # characters
IMPORTED = ("decoding_strategy", "rule", "inner")  # options whose value may be a path to a module
DEEPEST = 20  # nesting depth of lists and mappings
ENGINE = "engine"
SECTIONS = (ENGINE, "eval")
Owners = Mapping[str, Sequence[str]]  # section besides `engine:` -> names that a command reads


class ImportRefused(yaml.YAMLError):
    """A valid YAML text that would import a module."""


class Loader(yaml.SafeLoader):
    """A loader of plain YAML 1.1 values, except that `1e-1` is a number and a date is a text."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_yaml_str)


def load(text: str) -> Any:
    """Return the value of a YAML text. Raises YAMLError if it is invalid or refused.

    Hyphens in names become underscores. References (`&name`, `*name`) are refused because a few
    lines of them can expand to more than fits into memory.
    """
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"it has {len(text)} characters, and at most {LONGEST} are read")
    deep = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            deep += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            deep -= 1
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"it refers to *{event.anchor}, and references are not supported: write the value out")
        if deep > DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} deep")
    value = yaml.load(text, Loader=Loader)
    return named(value) if isinstance(value, dict) else value


def named(value: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a mapping with underscores in its names. Raises YAMLError for duplicate names and imports."""
    options = {name.replace("-", "_") if isinstance(name, str) else name: each for name, each in value.items()}
    if len(options) < len(value):
        raise yaml.YAMLError("it says an option twice, with a hyphen and with an underscore")
    for name in IMPORTED:
        source = options.get(name)
        if isinstance(source, str) and any(mark in source for mark in "./\\:"):
            raise ImportRefused(
                f"{name}={source!r} is a path, which imports a module: give it on the command line, as --{name} {source}"
            )
    return options


def options_in(source: str, owners: Owners) -> dict[Any, Any]:
    """Return the options in the file at `source`, or in `source` itself as YAML.

    Without owners, options may be outside of sections, and sections of other commands are ignored.
    Raises ValueError for invalid YAML and for options in the wrong section.
    """
    path = Path(source)
    if path.suffix in (".yml", ".yaml") and not path.is_file():
        raise ValueError(f"--config: there is no file {source!r}")
    where, text = (f"the file {source!r}", path.read_text(encoding="utf-8")) if path.is_file() else ("the text", source)
    try:
        value = load(text)
        if not isinstance(value, dict):
            absent = "" if path.is_file() else f", and there is no file {source!r}"
            raise ValueError(f"--config: {where} holds no names and values, like `max_tokens: 32`{absent}")
        if owners:
            return named(dict(in_sections(value, short(source), owners)))
        inside = isinstance(value.get(ENGINE), dict) and value.keys() <= {*SECTIONS}
        return named(value[ENGINE]) if inside else value
    except ImportRefused as error:
        raise ValueError(f"--config: in {where}, {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"--config: {where} is no YAML of options: {error}") from error


def in_sections(sections: Mapping[Any, Any], source: str, owners: Owners) -> Iterator[tuple[str, Any]]:
    """Yield the options of all sections. Raises ValueError for an option in the wrong section."""
    for section, options in sections.items():
        if section not in (ENGINE, *owners):
            right = owner_of(section, owners)
            raise ValueError(f"--config: {source} says {section!r} outside of a section: put it below `{right}:`")
        if not isinstance(options, dict):
            raise ValueError(f"--config: in {source}, `{section}:` holds no names and values, got {short(options)}")
        for name, value in options.items():
            name = str(name).replace("-", "_")
            if (right := owner_of(name, owners)) != section:
                known = [each for names in owners.values() for each in names]
                hint = "" if right != ENGINE or name in ENGINE_FIELDS else meant(name, known)
                raise ValueError(
                    f"--config: in {source}, {name} is in section `{section}:`, it belongs to `{right}:`"
                    + (f", or {hint}" if hint else "")
                )
            yield name, value


def owner_of(name: object, owners: Owners) -> str:
    """Return the section that an option belongs to."""
    return next((owner for owner, names in owners.items() if name in names), ENGINE)
