"""Options in messages: flags of the command line for names in Python's form, such as `EngineConfig.seed`."""

import re
from collections.abc import Callable, Iterable

from ..core.options import Options

# A name is qualified by its class or followed by a value. Names inside of paths, texts and other names stay.
QUALIFIED = r"(?<![\w/\\.'\"-])(?:(?:[A-Z]\w*(?:Options|Config|Params)|{owners})\.({names})\b|({names})=('[^' ]*'))"
# The same in hints, which name nothing but options: a bare name as well, and values without quotes.
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
    """Return a hint in which the options `names` appear as flags, also those that are named alone."""
    return _replaced(BARE, hint, names, lambda found: _flag(found[1], found[2]))


def as_yaml(text: str) -> str:
    """Return a text of Python's documentation with the word for None that YAML and the command line have."""
    return re.sub(r"\bNone\b", "null", text)


def _subclasses(cls: type) -> set[str]:
    """Return the names of a class and of all classes that derive from it."""
    return {cls.__name__}.union(*map(_subclasses, type.__subclasses__(cls)))


def _replaced(pattern: str, text: str, names: Iterable[str], flag: Callable[[re.Match[str]], str]) -> str:
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(pattern.replace("{names}", known), flag, text) if known else text


def _flag(name: str, value: str | None) -> str:
    """Return the flag of an option, with its value unless that is left open."""
    shown = "" if value in (None, "...") else value.strip("'")
    return f"--{name} {shown.lower() if shown in ('True', 'False') else shown}".rstrip()
