"""Decoding rules, one file each: which positions a block takes after a forward. The module name is the key."""

import pkgutil
from importlib import import_module

from ..core import Rule
from ..core.checks import short


def available() -> tuple[str, ...]:
    """Names of the rules of this package, found without importing any."""
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def load(name: str) -> type[Rule]:
    """The rule class of module `name` here. Raises ValueError for an unknown name."""
    if name not in available():
        raise ValueError(f"decoding rule {short(name)} is unknown: choose from {', '.join(available())}")
    return import_module(f"{__name__}.{name}").RULE
