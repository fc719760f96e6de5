"""YAML as options may be written in it: plain values, no references, no tags, and no import by a name in a file."""

from typing import Any

import yaml
from jsonargparse import get_loader, set_loader

MODE = "plain_yaml"  # the name under which jsonargparse finds it
LONGEST = 1 << 20  # characters
IMPORTED = ("decoding_strategy", "rule", "inner")  # options whose value may be a path to a module
DEEPEST = 20  # lists and mappings inside one another


class ImportRefused(yaml.YAMLError):
    """A text that is YAML, but would have a module imported."""


def load(text: str) -> Any:
    """The value that a YAML text holds. Raises YAMLError for a text that is none, or that is refused.

    The words of a name may be joined by hyphens. References (`&name`, `*name`) are refused because a few lines of them can
    stand for more than fits into memory.
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
    value = get_loader("yaml")(text)
    if not isinstance(value, dict):
        return value
    named = {name.replace("-", "_") if isinstance(name, str) else name: given for name, given in value.items()}
    if len(named) < len(value):
        raise yaml.YAMLError("it says an option twice, with a hyphen and with an underscore")
    for name in IMPORTED:
        given = named.get(name)
        if isinstance(given, str) and any(mark in given for mark in "./\\:"):
            raise ImportRefused(
                f"{name}={given!r} is a path, which imports a module: give it on the command line, as --{name} {given}"
            )
    return named


set_loader(MODE, load, exceptions=(yaml.YAMLError, ValueError, RecursionError))
