r"""Translate `pattern` of a JSON schema to a regex of the string as it is written in JSON.

Only syntax that has the same meaning in ECMA-262 and in Python is translated. The regex may match
fewer strings than the pattern: `\d`, `\w` and `\s` only match ASCII characters, and a character
class does not match characters that JSON escapes.
"""

import re
from typing import NamedTuple

from .json_leaves import CHARACTER, json_text, literal

# The characters that a class or `.` may match: not escaped in JSON, no line separator, one UTF-16 code unit.
SIMPLE = r'[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029\U00010000-\U0010ffff]'
CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": " "}
COMPLEMENTS = {"D": "[!#-/:-\\[\\]-~]", "W": "[!#-/:-@\\[\\]\\^`{-~]", "S": "[!#-\\[\\]-~]"}  # ASCII characters only
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
REPEATED = re.compile(r"[*+?]|\{([0-9]{1,4})(,?)([0-9]{0,4})\}")
DEEPEST = 20  # nested groups


class PatternPart(NamedTuple):
    """A translated part of a pattern, with its minimum and maximum number of characters; None means no maximum."""

    text: str
    least: int
    most: int | None


def translated(pattern: str, least: int, most: int | None) -> str:
    """Return the regex of the strings that contain a match of `pattern`, without their quotes.

    Args:
        pattern: A regex of ECMA-262.
        least: Minimum length of the strings in characters.
        most: Maximum length; None means no limit.

    Raises:
        ValueError: The pattern cannot be translated with certainty; the message says why.
    """
    start, end = pattern.startswith("^"), re.search(r"(?<!\\)(?:\\\\)*\$\Z", pattern) is not None
    reader = _Reader(pattern[start : len(pattern) - end])
    whole = reader.alternatives(0)
    if reader.rest:
        raise ValueError(f"{reader.rest[:10]!r} has no beginning")
    if (start or end) and reader.split:
        raise ValueError("^ and $ must enclose the whole pattern: give ^(?:...)$")
    if start and end:
        return _limited(whole, reader, least, most)
    if least or most is not None:
        raise ValueError("minLength and maxLength need a pattern from ^ to $")
    return ("" if start else f"{CHARACTER}*") + whole.text + ("" if end else f"{CHARACTER}*")


def _limited(whole: PatternPart, reader: "_Reader", least: int, most: int | None) -> str:
    """Return the regex of a pattern from ^ to $ that respects the limits of length or is one repeated character."""
    if whole.least >= least and (most is None or (whole.most is not None and whole.most <= most)):
        return whole.text
    if reader.single is None:
        raise ValueError("minLength and maxLength are only supported for one repeated character, such as ^[a-z]+$")
    lowest = max(least, whole.least)
    highest = min((limit for limit in (most, whole.most) if limit is not None), default=None)
    if highest is not None and highest < lowest:
        raise ValueError("no string of this pattern has this length")
    return f"{reader.single}{{{lowest},{'' if highest is None else highest}}}"


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self.rest = pattern
        self.split = False  # whether | occurs outside of groups
        self.single: str | None = None  # the regex of the character, if the pattern is one repeated character

    def alternatives(self, depth: int) -> PatternPart:
        """Read sequences with | between them."""
        if depth > DEEPEST:
            raise ValueError(f"it has more than {DEEPEST} groups within groups")
        parts = [self._sequence(depth)]
        while self._take("|"):
            self.split |= depth == 0
            parts.append(self._sequence(depth))
        if len(parts) == 1:
            return parts[0]
        self.single = None
        most = [part.most for part in parts if part.most is not None]
        text = f"(?:{'|'.join(part.text for part in parts)})"
        return PatternPart(text, min(part.least for part in parts), max(most) if len(most) == len(parts) else None)

    def _sequence(self, depth: int) -> PatternPart:
        """Read atoms with their repetitions, up to | or the end of the group."""
        text, least, count = "", 0, 0
        most: int | None = 0
        only: str | None = None
        while self.rest and self.rest[0] not in "|)":
            atom = self._atom(depth)
            low, high = self._times()
            repeated = atom.text if (low, high) == (1, 1) else f"(?:{atom.text}){{{low},{'' if high is None else high}}}"
            text, least, count = text + repeated, least + atom.least * low, count + 1
            most = None if most is None or atom.most is None or high is None else most + atom.most * high
            only = atom.text if (atom.least, atom.most, count) == (1, 1, 1) else None
        self.single = only
        return PatternPart(text, least, most)

    def _take(self, letters: str) -> bool:
        """Skip `letters` if they come next. Return whether they do."""
        if found := self.rest.startswith(letters):
            self.rest = self.rest[len(letters) :]
        return found

    def _times(self) -> tuple[int, int | None]:
        """Read how often an atom is repeated. A lazy repetition matches the same strings as a greedy one."""
        if (found := REPEATED.match(self.rest)) is None:
            return 1, 1
        self.rest = self.rest[found.end() :]
        self._take("?")
        if self.rest[:1] in ("*", "+", "?"):
            raise ValueError(f"{self.rest[0]!r} follows a repetition")
        if found[0] in "*+?":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[0]]
        low = int(found[1])
        high = (int(found[3]) if found[3] else None) if found[2] else low
        if high is not None and high < low:
            raise ValueError(f"{found[0]} has its limits in the wrong order")
        return low, high

    def _atom(self, depth: int) -> PatternPart:
        """Read a group, a class or a character."""
        letter, self.rest = self.rest[0], self.rest[1:]
        if letter == "(":
            if self._take("?") and not self._take(":"):
                raise ValueError(f"(?{self.rest[:1]} is not supported: use (?:...) or (...)")
            part = self.alternatives(depth + 1)
            if not self._take(")"):
                raise ValueError("a group has no end")
            return part._replace(text=f"(?:{part.text})")
        if letter == "[":
            return PatternPart(self._class(), 1, 1)
        if letter == ".":
            return PatternPart(SIMPLE, 1, 1)
        if letter == "\\":
            return PatternPart(self._escaped(), 1, 1)
        if letter in "^$*+?{}]":
            raise ValueError(f"{letter!r} is not supported at {(letter + self.rest)[:10]!r}")
        return PatternPart(literal(json_text(self._bmp(letter))[1:-1]), 1, 1)

    def _escaped(self) -> str:
        """Read what follows a backslash outside of a class."""
        letter = self.rest[:1]
        if letter and letter in CLASSES:
            self.rest = self.rest[1:]
            return f"[{CLASSES[letter]}]"
        if letter in COMPLEMENTS and letter:
            self.rest = self.rest[1:]
            return COMPLEMENTS[letter]
        return literal(json_text(self._character())[1:-1])

    def _character(self) -> str:
        """Read the character that follows a backslash."""
        letter, self.rest = self.rest[:1], self.rest[1:]
        if letter in CONTROLS and letter:
            return CONTROLS[letter]
        if letter in "xu" and letter:
            digits = 2 if letter == "x" else 4
            if re.fullmatch(rf"[0-9A-Fa-f]{{{digits}}}", code := self.rest[:digits]):
                self.rest = self.rest[digits:]
                return self._bmp(chr(int(code, 16)))
        if not letter or letter.isalnum() or not letter.isascii() or letter == "_":
            raise ValueError(f"\\{letter} is not supported")
        return letter

    def _bmp(self, letter: str) -> str:
        """Return the character. Raises ValueError unless it is one UTF-16 code unit and no surrogate."""
        if ord(letter) > 0xFFFF or 0xD800 <= ord(letter) < 0xE000:
            raise ValueError(f"{letter!r} is not supported")
        return letter

    def _class(self) -> str:
        """Read a character class, after its opening bracket."""
        complement = self._take("^")
        items: list[str] = []
        while not self._take("]"):
            low = self._member(complement)
            if len(low) == 1 and self.rest.startswith("-") and not self.rest.startswith("-]"):
                self.rest = self.rest[1:]
                high = self._member(complement)
                if len(high) != 1 or ord(high) < ord(low):
                    raise ValueError(f"{low}-{high} is no range of characters")
                if not (high < "\ud800" or low > "\udfff"):
                    raise ValueError(f"the range {low!r}-{high!r} is not supported")
                items.append(f"{_code(low)}-{_code(high)}")
            else:
                items.append(_code(low) if len(low) == 1 else low)
        if not items:
            raise ValueError("an empty class is not supported")
        return f"[[{'^' if complement else ''}{''.join(items)}]&&{SIMPLE}]"

    def _member(self, complement: bool) -> str:
        """Read one character of a class, or the ranges of a named class in it."""
        letter, self.rest = self.rest[:1], self.rest[1:]
        if letter == "" or letter == "[" or (letter in "&-~|" and self.rest.startswith(letter)):
            raise ValueError("a class has no end, or a [ or a doubled letter such as && in it")
        if letter != "\\":
            return self._bmp(letter)
        if self.rest[:1] in CLASSES and self.rest:
            if complement:  # it would have to exclude non-ASCII characters, too
                raise ValueError(f"\\{self.rest[0]} in a class with ^ is not supported")
            name, self.rest = self.rest[0], self.rest[1:]
            return CLASSES[name] if name != "s" else "\\x20\\x20"  # the caller takes a single letter as a character
        return self._character()


def _code(letter: str) -> str:
    return f"\\x{{{ord(letter):x}}}"
