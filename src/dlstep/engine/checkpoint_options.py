"""Check the decoding options in a checkpoint's config.json. They never cause an import."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .. import rules, strategies
from ..core.checks import short

BLOCK = "bd_size"  # size of a block that is divided into sub-blocks; for checkpoints only


def check_name(model: str, declared: str, *, option: str = "decoding_strategy") -> None:
    """Raise ValueError unless `declared` is the name of a known strategy (or rule).

    Only the caller may give a dotted path: it could import a module from the checkpoint folder.
    """
    plugins = strategies.PLUGINS if option == "decoding_strategy" else rules.PLUGINS
    if not plugins.is_known(declared):
        raise ValueError(
            f"{model} asks for {option}={declared!r}, and a checkpoint may only ask for one of "
            f"{', '.join(plugins.available())}: give {option} yourself if you trust another one"
        )


def check_options(model: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for options that no strategy or rule has. Values are checked later."""
    classes = [plugins.load(name) for plugins in (strategies.PLUGINS, rules.PLUGINS) for name in plugins.own()]
    known = {field.name for cls in classes for field in fields(cls)} | {BLOCK}
    for option, value in options.items():
        if option not in known:
            raise ValueError(f"{model} states {option}={short(value)}, which no strategy knows: take it out of its config.json")
        if option == BLOCK and (type(value) is not int or value <= 0):
            raise ValueError(f"{model} states {option}={short(value)}, which must be an integer above 0")
        if option in rules.HOLDERS:
            if not isinstance(value, str):
                raise ValueError(f"{model} states {option}={short(value)}, which must be the name of a rule")
            check_name(model, value, option=option)
