"""Markdown of options: the table of a dataclass's fields, and help texts with escaped characters."""

import re
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from typing import Any, get_args, get_type_hints

from dlstep.cli.options import kinds
from dlstep.core.checks import limits_of
from dlstep.engine.config import field_help

_SPECIAL = re.compile(r"([*_<>\[\]{}|])")


def escaped(text: str) -> str:
    """Return a help text as Markdown, in which text in backticks stays code."""
    parts = text.split("`")
    return "`".join(part if place % 2 else _SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(' '.join(cell.split()) for cell in line)} |" for line in lines) + "\n"


def options_text(path: str) -> str:
    """Return the table of the fields of a dataclass, named like `dlstep.serve.settings:ServeOptions`."""
    module, _, name = path.partition(":")
    owner = vars(import_module(module))[name]
    helps, hints, bounds = field_help(owner), get_type_hints(owner), get_type_hints(owner, include_extras=True)
    rows = [_row(field, hints[field.name], bounds[field.name], helps[field.name]) for field in fields(owner)]
    return table(("option", "type", "default", "meaning"), rows)


def _type(hint: Any) -> str:
    """The type of an option, in which classes have short names."""
    names = [kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind) for kind in kinds(hint)]
    shown = " | ".join("None" if name == "NoneType" else name for name in names)
    return "`" + re.sub(r"(?:\w+\.)+(?=\w)", "", shown).replace("|", r"\|") + "`"


def _row(field: Field[Any], hint: Any, bound: Any, help_text: str) -> tuple[str, ...]:
    short = f"{type(field.default).__name__}()" if is_dataclass(field.default) else repr(field.default)
    default = "" if field.default is MISSING else f"`{short}`"
    return f"`{field.name}`", ", ".join(filter(None, [_type(hint), allowed(bound)])), default, escaped(help_text)


def allowed(hint: Any) -> str:
    """Return the bounds of an annotation in words; empty if there are none."""
    return ", ".join(f"{words} {_number(limit)}" for words, limit in limits_of(hint))


def _number(limit: float) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)
