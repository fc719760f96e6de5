"""Decoding strategies, one file each. The module name is the key: no registry, no import side effect."""

import pkgutil
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ..core import Strategy, with_options
from ..core.checks import short
from ._blocks import Blocks as Blocks, Blockwise as Blockwise

ALIASES = {"multi_block_diffusion": "multi_bd", "block_diffusion": "multi_bd", "fast_dllm": "multi_bd"}
ENTRY_POINTS = "dlstep.strategies"


def own() -> tuple[str, ...]:
    """Names of the strategies of this package, found without importing any."""
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def available() -> tuple[str, ...]:
    """Names of the strategies of this package and of those that installed packages announce, found without importing any."""
    return tuple(sorted({*own()} | {point.name for point in entry_points(group=ENTRY_POINTS)}))


def is_known(name: str) -> bool:
    """Whether a strategy is found by this name alone, without a path to a module."""
    return ALIASES.get(name, name) in available()


def load(name: str) -> type[Strategy]:
    """The strategy class of module `name` here, of an entry point, or of a dotted module path elsewhere.

    A module names its class `STRATEGY`. Raises ValueError for an unknown name; a broken module raises its own error.
    """
    name = ALIASES.get(name, name)
    if "." in name:
        return _outside(name)
    if name in own():
        return import_module(f"{__name__}.{name}").STRATEGY
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return point.load()
    raise ValueError(
        f"decoding strategy {short(name)} is unknown: choose from {', '.join(available())}, or give a dotted module path"
    )


def make(name: str, **options: Any) -> Strategy:
    """The strategy of this name with options by their flat names, those of its rule included.

    Raises ValueError for an unknown name, an option that it does not have, or a value out of range.
    """
    return with_options(load(name)(), options)


def _outside(name: str) -> type[Strategy]:
    """The strategy class of the module with this dotted path. Raises ValueError if there is no such module or class."""
    parts = name.split(".")
    try:
        if not all(map(str.isidentifier, parts)):
            raise ModuleNotFoundError(name=name)
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, *(".".join(parts[:count]) for count in range(1, len(parts)))):
            raise  # the module is there and lacks one that it imports
        raise ValueError(
            f"decoding strategy {name!r} is unknown: Python finds no module {error.name!r}; give one of "
            f"{', '.join(available())}, or add the folder of your module to PYTHONPATH"
        ) from error
    if "STRATEGY" not in vars(module):
        raise ValueError(f"decoding strategy {name!r} has no class: let its last line be STRATEGY = YourStrategy")
    return module.STRATEGY
