"""Rewrite messages for the command line: Python names of options, such as `EngineConfig.seed`, become flags."""

import re
from collections.abc import Iterable

from ..core.options import Options

START = r"(?<![\w/\\.'\"-])"  # not inside paths, quoted texts or other names
# An option that is qualified by its class or followed by a value.
QUALIFIED = START + r"(?:(?:[A-Z]\w*(?:Command|Options|Config|Params)|{owners})\.({names})\b|({names})=('[^' ]*'))"
# An option in a hint, where known names always mean options: bare names and values without quotes match as well.
BARE = START + r"(?:[A-Z]\w*\()?({names})\b()(?:=('[^' ]*'|-?\w+|\.\.\.))?\)?"


def with_flags(message: str, names: Iterable[str], pattern: str = QUALIFIED) -> str:
    """Return a message in which the options `names` appear as flags."""
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    filled = pattern.replace("{names}", known).replace("{owners}", "|".join(_subclasses(Options)))
    return re.sub(filled, lambda found: _flag(found[1] or found[2], found[3]), message) if known else message


def as_yaml(text: str) -> str:
    """Return a text from a docstring with None written as `null`, as in YAML and on the command line."""
    return re.sub(r"\bNone\b", "null", text)


def _subclasses(cls: type) -> set[str]:
    """Return the names of a class and of all classes that derive from it."""
    return {cls.__name__}.union(*map(_subclasses, type.__subclasses__(cls)))


def _flag(name: str, value: str | None) -> str:
    """Return the flag of an option, followed by its value. A missing value and `...` are left out."""
    shown = "" if value in (None, "...") else value.strip("'")
    return f"--{name} {shown.lower() if shown in ('True', 'False') else shown}".rstrip()
