"""Rewrite messages for the command line: Python names of options, such as `EngineConfig.seed`, become flags."""

import re
from collections.abc import Callable, Iterable

from ..core.options import Options

# Matches an option that is qualified by its class or followed by a value, but not inside paths, quoted texts or other names.
QUALIFIED = r"(?<![\w/\\.'\"-])(?:(?:[A-Z]\w*(?:Options|Config|Params)|{owners})\.({names})\b|({names})=('[^' ]*'))"
# The same for hints. Known names in a hint always mean options, so bare names and values without quotes match as well.
BARE = r"(?<![\w/\\.'\"-])(?:[A-Z]\w*\()?({names})\b(?:=('[^' ]*'|-?\w+|\.\.\.))?\)?"


def with_flags(message: str, names: Iterable[str]) -> str:
    """Return a message in which the options `names` appear as flags."""
    return _replaced(
        QUALIFIED.replace("{owners}", "|".join(_subclasses(Options))),
        message,
        names,
        lambda found: _flag(found[1] or found[2], found[3]),
    )


def hint_with_flags(hint: str, names: Iterable[str]) -> str:
    """Return a hint in which the options `names` appear as flags, even without a class or a value."""
    return _replaced(BARE, hint, names, lambda found: _flag(found[1], found[2]))


def as_yaml(text: str) -> str:
    """Return a text from a docstring with None written as `null`, as in YAML and on the command line."""
    return re.sub(r"\bNone\b", "null", text)


def _subclasses(cls: type) -> set[str]:
    """Return the names of a class and of all classes that derive from it."""
    return {cls.__name__}.union(*map(_subclasses, type.__subclasses__(cls)))


def _replaced(pattern: str, text: str, names: Iterable[str], flag: Callable[[re.Match[str]], str]) -> str:
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(pattern.replace("{names}", known), flag, text) if known else text


def _flag(name: str, value: str | None) -> str:
    """Return the flag of an option, followed by its value. A missing value and `...` are left out."""
    shown = "" if value in (None, "...") else value.strip("'")
    return f"--{name} {shown.lower() if shown in ('True', 'False') else shown}".rstrip()
