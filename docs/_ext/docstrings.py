"""Docstrings and annotations of the code as Sphinx reads them.

Names in backticks become links, other code in backticks stays as it is, and bounds of values are shown in words.
"""

import re
import sys
from dataclasses import fields, is_dataclass
from pydoc import locate
from typing import Annotated, Any, get_origin

from option_text import allowed
from sphinx.application import Sphinx
from sphinx.util import typing as sphinx_typing

_CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)(\w?)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_stringify = sphinx_typing.stringify_annotation
BEFORE_NAPOLEON = 400


def _marked(code: re.Match[str]) -> str:
    text, after = code.groups()
    if _NAME.fullmatch(text) and not after:
        return code[0]
    return f"``{' '.join(text.split())}``" + (rf"\ {after}" if after else "")


def prepare(app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Write the lines of a docstring as reStructuredText."""
    del app, value, options
    parts = re.split(r"(`+[^`]*`+)", "\n".join(lines))
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    lines[:] = _CODE.sub(_marked, "".join(parts)).split("\n")
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment: napoleon takes what precedes a colon in the first line as a type
    place, _, last = name.rpartition(".")
    owner = locate(place) if what == "attribute" else None
    for field in fields(owner) if isinstance(owner, type) and is_dataclass(owner) else ():
        if field.name == last and (bounds := allowed(field.type)):
            lines += [f"Allowed: {bounds}.", ""]


def stringify(annotation: Any, *arguments: Any, **options: Any) -> str:
    """Return an annotation as text, without the bounds of `Annotated`."""
    return _stringify(annotation.__origin__ if get_origin(annotation) is Annotated else annotation, *arguments, **options)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions. `stringify` replaces a function of Sphinx, which has no event for annotations of attributes."""
    app.connect("autodoc-process-docstring", prepare, priority=BEFORE_NAPOLEON)
    for module in list(sys.modules.values()):
        if vars(module).get("stringify_annotation") is _stringify:
            vars(module)["stringify_annotation"] = stringify
    return {"parallel_read_safe": True, "parallel_write_safe": True}
