"""Spans with fields by name, whichever part of the span they belong to."""

from dataclasses import fields, replace
from typing import Any

from dlstep.core import Grid, Rows, SamplingParams, Span, Storing, Wanted, Who

PARTS = {"who": Who, "rows": Rows, "wanted": Wanted, "storing": Storing}
FIELDS = {field.name: part for part, cls in PARTS.items() for field in fields(cls)}
EMPTY = Span(Who(0, 0, SamplingParams(), 0), Rows(0, (), 0, Grid(0, 4)))


def changed(span: Span, **values: Any) -> Span:
    """Return the span with these values of fields of its parts."""
    for name, value in values.items():
        part = FIELDS[name]
        span = replace(span, **{part: replace(getattr(span, part), **{name: value})})
    return span


def span_with(**values: Any) -> Span:
    """Return a span that feeds nothing, with these values of fields."""
    return changed(EMPTY, **values)
