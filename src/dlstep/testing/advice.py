"""Warnings about user code: numbers without bounds, and fields of `Rows` missing from `wants`."""

import ast
import inspect
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..core import Options
from .generators import open_fields

# Fields of `Rows` that are empty unless requested: the `Wants` to use, and a test for it.
ASKED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "entropies": ('Wants(statistics=frozenset({"entropy"}))', lambda wants: "entropy" in wants.statistics),
    "margins": ('Wants(statistics=frozenset({"margin"}))', lambda wants: "margin" in wants.statistics),
    "noise": ('Wants(statistics=frozenset({"noise"}))', lambda wants: "noise" in wants.statistics),
    "best_ids": ("Wants(best=4)", lambda wants: wants.best > 0),
    "best_probabilities": ("Wants(best=4)", lambda wants: wants.best > 0),
    "named_probabilities": ("Wants(named=1), and name the ids in `named`", lambda wants: wants.named > 0),
}


def owners(value: Options) -> Iterator[Options]:
    """Yield a strategy or rule and its inner rules, except those of this package."""
    if not value.SHIPPED:
        yield value
    for part in map(attrgetter, value.__dataclass_fields__):
        if isinstance(held := part(value), Options):
            yield from owners(held)


def open_field_warnings(value: Options) -> Iterator[str]:
    """Yield a warning for each numeric field of a user's class without upper or lower bound."""
    for owner in owners(value):
        cls = type(owner)
        for name, kind, low, high in open_fields(owner):
            remedy = f"Annotated[{kind.__name__}, Interval(ge={low}, le={high})]"
            yield (
                f"{cls.__name__}.{name} ({_declared(cls, name)}) has no lower or no upper bound, so a request may set it to "
                f"any number. The laws try {low} to {high} only. Write both bounds, for example {name}: {remedy}."
            )


def _declared(cls: type, name: str) -> str:
    """Return file and line of a field's declaration, or the module's name without source."""
    for owner in cls.__mro__:
        if name in vars(owner).get("__annotations__", {}):
            file, nodes = _source(owner)
            for node in nodes:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                    return f"{file}:{node.lineno}"
    return cls.__module__


def _source(cls: type) -> tuple[str, list[ast.AST]]:
    """Return a class's file name and its syntax tree's nodes; no nodes without source."""
    file = inspect.getsourcefile(cls)
    if file is None:
        return "", []
    return Path(file).name, list(ast.walk(ast.parse(Path(file).read_bytes())))


def unasked_reads(value: Options) -> list[tuple[str, str]]:
    """Return the requestable fields of `Rows` that user classes' files read, each with a warning.

    Skips files whose `wants` depends on options, which may match the fields that they read.
    """
    found: dict[str, str] = {}
    for owner in owners(value):
        (file, nodes), own = _source(type(owner)), type(owner).__name__
        if any(_is_self(inner) for node in nodes if _is_wants(node) for inner in ast.walk(node)):
            continue
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr in ASKED and not _is_self(node.value):
                remedy = f"define the property `wants` in {own} and return {ASKED[node.attr][0]}"
                place = f"{file}:{node.lineno}"
                sentence = f"{place} reads rows.{node.attr}, which is empty because {own} does not ask for it: {remedy}."
                found.setdefault(node.attr, sentence)
    return list(found.items())


def _is_wants(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "wants"


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
