"""Option files: plain YAML values by name, none of which may import code.

A file may group its options in sections: `engine:` for every command with an engine, `eval:` for `dlstep eval`.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from ..core.checks import short
from ..rules import HOLDERS

IMPORTED = ("decoding_strategy", *HOLDERS)  # options whose value may be a path to a module
ENGINE = "engine"
SECTIONS = (ENGINE, "eval")


class Loader(yaml.SafeLoader):
    """A loader of plain YAML 1.1 values, except that `1e-1` is a number and a date is a text."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_yaml_str)


def load(text: str) -> Any:
    """Return the value of a YAML text. Raises YAMLError if it is invalid."""
    return yaml.load(text, Loader=Loader)


def options_in(source: str, command: str) -> dict[Any, Any]:
    """Return the options for a command in the file at `source`, or in `source` itself as YAML.

    Raises ValueError for invalid YAML and for a value that would import a module.
    """
    path = Path(source)
    if path.suffix in (".yml", ".yaml") and not path.is_file():
        raise ValueError(f"--config: there is no file {source!r}")
    where, text = (f"the file {source!r}", path.read_text(encoding="utf-8")) if path.is_file() else ("the text", source)
    try:
        content = load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"--config: {where} is no YAML of options: {error}") from error
    if not isinstance(content, dict):
        absent = "" if path.is_file() else f", and there is no file {source!r}"
        raise ValueError(f"--config: {where} holds no names and values, like `max_tokens: 32`{absent}")
    given = {name: value for name, value in content.items() if name not in SECTIONS}
    for section in SECTIONS:
        inside = content.get(section, {})
        if not isinstance(inside, dict):
            raise ValueError(f"--config: in {where}, `{section}:` holds no names and values, got {short(inside)}")
        given |= inside if section in (ENGINE, command) else {}
    options = {name.replace("-", "_") if isinstance(name, str) else name: value for name, value in given.items()}
    if len(options) < len(given):
        raise ValueError(f"--config: {where} says an option twice, with a hyphen and with an underscore")
    for name in IMPORTED:
        if isinstance(value := options.get(name), str) and any(mark in value for mark in "./\\:"):
            raise ValueError(
                f"--config: in {where}, {name}={value!r} is a path, which imports a module: give it on the command line, as "
                f"--{name} {value}"
            )
    return options
