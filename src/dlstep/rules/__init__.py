"""Decoding rules, one file each: which positions a block takes after a forward. The module name is the key."""

from collections.abc import Mapping
from typing import Any

from ..core import Rule
from ..core.plugins import Shelf

SHELF = Shelf("rule", "RULE", Rule, __name__)
own, available, is_known, load, name_of = SHELF.own, SHELF.available, SHELF.is_known, SHELF.load, SHELF.name_of

HOLDERS = ("rule", "inner")  # options whose value is a rule: that of a strategy, and that which another rule wraps


def with_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with every rule that is given by its name or class made a value, with default options.

    Raises ValueError for a name that leads nowhere.
    """
    named = {name: given for name, given in options.items() if name in HOLDERS and isinstance(given, str | type)}
    return {**options, **{name: SHELF.value(given) for name, given in named.items()}}
