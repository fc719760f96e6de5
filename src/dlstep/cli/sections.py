"""YAML files of options in sections: `engine:` for every command that has an engine, the others for one command each."""

import json
from collections.abc import Mapping, Sequence as Items
from typing import Any

from ..core.checks import short
from ..engine.config import ENGINE_FIELDS
from ..engine.option_errors import meant
from . import yaml_file
from .options import check_yaml

ENGINE = "engine"
SECTIONS = (ENGINE, "eval", "tune")
Owners = Mapping[str, Items[str]]  # the names of each section beside `engine:` that a command reads


def with_sections(arguments: Items[str], owners: Owners) -> list[str]:
    """The arguments with each file of `--config` as one text of options, its sections joined.

    Without owners, a file may have its options outside of sections, and other commands' sections are not read.
    """
    found: list[str] = []
    named = False
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if named:
            found.append(flattened(argument, owners))
        elif flag == "--config" and equals:
            found.append(f"--config={flattened(value, owners)}")
        else:
            found.append(argument)
        named = argument == "--config"
    return found


def flattened(source: str, owners: Owners) -> str:
    """The options of the sections of a YAML file, as JSON. Raises ValueError for one in the wrong section."""
    told = check_yaml(source)
    if not owners:
        inside = isinstance(told.get(ENGINE), dict) and told.keys() <= {*SECTIONS}
        return checked(source, json.dumps(told[ENGINE])) if inside else source
    flat: dict[str, Any] = {}
    for section, options in told.items():
        if section not in (ENGINE, *owners):
            where = next((owner for owner, names in owners.items() if section in names), ENGINE)
            raise ValueError(f"--config: {short(source)} says {section!r} outside of a section: put it below `{where}:`")
        if not isinstance(options, dict):
            raise ValueError(f"--config: in {short(source)}, `{section}:` holds no names and values, got {short(options)}")
        for name, value in options.items():
            name = str(name).replace("-", "_")
            right = next((owner for owner, names in owners.items() if name in names), ENGINE)
            if right != section:
                known = [each for names in owners.values() for each in names]
                hint = "" if right != ENGINE or name in ENGINE_FIELDS else meant(name, known) or ""
                raise ValueError(
                    f"--config: in {short(source)}, {name} is in section `{section}:`, it belongs to `{right}:`"
                    + (f", or {hint}" if hint else "")
                )
            flat[name] = value
    return checked(source, json.dumps(flat))


def checked(source: str, text: str) -> str:
    """The text. Raises ValueError if it would have a module imported."""
    try:
        yaml_file.load(text)
    except yaml_file.ImportRefused as error:
        raise ValueError(f"--config: in the file {source!r}, {error}") from error
    return text
