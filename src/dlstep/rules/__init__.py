"""Decoding rules, one file each, found by module name."""

from collections.abc import Mapping
from typing import Any

from ..core import Rule
from ..core.plugins import Shelf

SHELF = Shelf("rule", "RULE", Rule, __name__)
own, available, is_known, load, name_of = SHELF.own, SHELF.available, SHELF.is_known, SHELF.load, SHELF.name_of

HOLDERS = ("rule", "inner")  # options that hold a rule (of strategies, of rules)


def with_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` with each rule given by name or class replaced by its default instance.

    Raises ValueError for an unknown name.
    """
    named = {name: given for name, given in options.items() if name in HOLDERS and isinstance(given, str | type)}
    return {**options, **{name: SHELF.value(given) for name, given in named.items()}}
