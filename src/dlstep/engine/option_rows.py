"""Listings of the options of strategies and rules, with ranges, defaults and help texts."""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple, get_type_hints

from .. import rules
from ..core import Options
from ..core.checks import limits_of, values_of
from ..core.options import by_default
from .config import field_help


class OptionRow(NamedTuple):
    """An option of a strategy or a rule in a listing; `limits` are pairs of words and number."""

    name: str
    hint: Any
    default: object
    limits: tuple[tuple[str, Any], ...]
    help: str

    @property
    def allowed(self) -> str:
        """Return the allowed range in words; empty if every value is allowed."""
        return ", ".join(f"{words} {limit}" for words, limit in self.limits)

    def line(self) -> str:
        """Return the help text with range and default."""
        facts = "; ".join(filter(None, (self.allowed, f"default {self.default}")))
        return f"{self.help} ({facts})".strip()


def option_rows(value: Options) -> list[OptionRow]:
    """Return the options of a strategy or a rule. A rule that it holds is listed by name."""
    cls = type(value)
    texts, hints, bounds = field_help(cls), get_type_hints(cls), get_type_hints(cls, include_extras=True)
    rows: list[OptionRow] = []
    for own in fields(value):
        default, hint = values_of(value)[own.name], hints[own.name]
        if isinstance(default, Options):
            default = values_of(by_default(cls))[own.name]
            default, hint = rules.name_of(type(default)) or type(default).__name__, str
        rows.append(OptionRow(own.name, hint, default, limits_of(bounds[own.name]), texts[own.name]))
    return rows


def parts_of(value: Options) -> Iterator[Options]:
    """Yield a strategy or rule, then the rule that it holds, then the rule that this rule wraps."""
    yield value
    for part in values_of(value).values():
        if isinstance(part, Options):
            yield from parts_of(part)


def paragraphs(value: Options) -> list[str]:
    """Return the paragraphs of the docstring of the value's module, or else of its class."""
    module = sys.modules[type(value).__module__]
    return (inspect.getdoc(module) or inspect.getdoc(type(value)) or type(value).__name__).split("\n\n")
