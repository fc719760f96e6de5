"""Warnings about user code: unbounded numbers, and fields that `sample_spec` does not request."""

import ast
import inspect
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..core import Options
from .generators import open_fields

# Fields of `SpanSamples` that are empty unless requested: the `SampleSpec` to use, and a test.
ON_REQUEST: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "entropies": ('SampleSpec(statistics=frozenset({"entropy"}))', lambda spec: "entropy" in spec.statistics),
    "margins": ('SampleSpec(statistics=frozenset({"margin"}))', lambda spec: "margin" in spec.statistics),
    "noise": ('SampleSpec(statistics=frozenset({"noise"}))', lambda spec: "noise" in spec.statistics),
    "best_ids": ("SampleSpec(best=4)", lambda spec: spec.best > 0),
    "best_probabilities": ("SampleSpec(best=4)", lambda spec: spec.best > 0),
    "scored_probabilities": ("SampleSpec(scored=1), and return the ids from `scored_ids`", lambda spec: spec.scored > 0),
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


def unrequested_reads(value: Options) -> list[tuple[str, str]]:
    """Return the fields in `ON_REQUEST` that user classes' files read, each with a warning.

    Skips files whose `sample_spec` depends on options, which may match the fields that they read.
    """
    warnings: dict[str, str] = {}
    for owner in owners(value):
        (file, nodes), own = _source(type(owner)), type(owner).__name__
        if any(_is_self(inner) for node in nodes if _is_sample_spec(node) for inner in ast.walk(node)):
            continue
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr in ON_REQUEST and not _is_self(node.value):
                remedy = f"define the property `sample_spec` in {own} and return {ON_REQUEST[node.attr][0]}"
                place = f"{file}:{node.lineno}"
                sentence = f"{place} reads rows.{node.attr}, which is empty because {own} does not request it: {remedy}."
                warnings.setdefault(node.attr, sentence)
    return list(warnings.items())


def _is_sample_spec(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "sample_spec"


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
