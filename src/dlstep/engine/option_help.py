"""Options of strategies and rules for listings: names, ranges, defaults and help texts."""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from docstring_parser import parse_from_object

from .. import rules
from ..core import Options, options_of
from ..core.checks import limits_of
from ..core.options import by_default


@dataclass(frozen=True, slots=True)
class OptionRow:
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
    for field in fields(value):
        default, hint = vars_of(value)[field.name], hints[field.name]
        if isinstance(default, Options):
            default = vars_of(by_default(cls))[field.name]
            default, hint = rules.name_of(type(default)) or type(default).__name__, str
        rows.append(OptionRow(field.name, hint, default, limits_of(bounds[field.name]), texts[field.name]))
    return rows


def field_help(owner: type) -> dict[str, str]:
    """Return the docstring of each dataclass field, inherited ones included; "" without source."""
    texts: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        texts |= _own_help(cls)
    return {field.name: texts.get(field.name, "") for field in fields(owner)}


@cache
def _own_help(cls: type) -> dict[str, str]:
    """Return the docstring of each field that the class itself defines; none without source."""
    try:
        found = parse_from_object(cls)
    except TypeError:  # of a class without a file, such as `object`
        return {}
    return {param.arg_name: param.description for param in found.params if param.description}


def vars_of(value: Options) -> dict[str, object]:
    """Return the fields of a value, by name."""
    known = options_of(value)
    return {field.name: known[field.name] for field in fields(value)}


def parts_of(value: Options) -> Iterator[Options]:
    """Yield a strategy or rule, then the rule that it holds, then the rule that this rule wraps."""
    yield value
    for part in vars_of(value).values():
        if isinstance(part, Options):
            yield from parts_of(part)


def paragraphs(value: Options) -> list[str]:
    """Return the paragraphs of the docstring of the value's module, or else of its class."""
    module = sys.modules[type(value).__module__]
    return (inspect.getdoc(module) or inspect.getdoc(type(value)) or type(value).__name__).split("\n\n")
