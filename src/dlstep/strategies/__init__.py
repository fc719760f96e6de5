"""Decoding strategies, one file each. The module name is the key: no registry, no import side effect."""

import pkgutil
from importlib import import_module
from importlib.metadata import entry_points

from ..core import Strategy
from ..core.checks import short
from ._blocks import Blockwise as Blockwise, ByConfidence as ByConfidence

ALIASES = {"multi_block_diffusion": "multi_bd", "block_diffusion": "multi_bd", "fast_dllm": "multi_bd"}
ENTRY_POINTS = "dlstep.strategies"


def available() -> tuple[str, ...]:
    """Names of the strategies of this package and of those that installed packages announce, found without importing any."""
    own = {module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")}
    return tuple(sorted(own | {point.name for point in entry_points(group=ENTRY_POINTS)}))


def load(name: str) -> type[Strategy]:
    """The strategy class of module `name` here, of an entry point, or of a dotted module path elsewhere.

    A module names its class `STRATEGY`. Raises ValueError for an unknown name; a broken module raises its own error.
    """
    name = ALIASES.get(name, name)
    if "." in name:
        return import_module(name).STRATEGY
    if any(module.name == name for module in pkgutil.iter_modules(__path__)) and not name.startswith("_"):
        return import_module(f"{__name__}.{name}").STRATEGY
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return point.load()
    raise ValueError(
        f"decoding strategy {short(name)} is unknown: choose from {', '.join(available())}, or give a dotted module path"
    )
