r"""Regexes of the JSON texts of values without subschemas: any value, numbers between limits, formats, and `pattern`.

The dialect is that of Rust's `regex` crate. Every regex can be concatenated without parentheses. Of a
`pattern`, only syntax that has the same meaning in ECMA-262 and in Python is translated. Its regex may
match fewer strings than the pattern: `\d`, `\w` and `\s` only match ASCII characters, and a character
class does not match characters that JSON escapes.
"""

import json
import re
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

SPACE = "[ ]?"  # allowed inside brackets and around commas and colons
COMMA = f"{SPACE},{SPACE}"
FIRST = "\U0010fffe"  # a noncharacter that occurs in no text of a schema; `automaton` in _limited_worker.py needs it
PLAIN = rf'[^"\\\x00-\x1f\x7f-\x9f{FIRST}]'  # a character that is written without an escape
CHARACTER = rf'(?:{PLAIN}|\\["\\/bfnrt])'
STRING = f'"{CHARACTER}*"'
NATURAL = "(?:0|[1-9][0-9]*)"
INTEGER = f"-?{NATURAL}"
NUMBER = rf"{INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{{1,2}})?"
DECIMALS = 6  # of a number with limits: with more, it could round to a limit that is excluded
LARGEST_EXCLUDED = 10**9  # up to it, numbers with DECIMALS decimals differ by more than rounding errors

DAY = (
    r"(?:[1-9][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"|(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)"  # leap years
)
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{CLOCK})"
OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
HOST = rf"(?:{LABEL}\.){{1,4}}[A-Za-z]{{2,12}}"
LOCAL = r"[A-Za-z0-9_+-]{1,20}"
URL_CHARACTER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"
# By name: the regex, and the minimum and maximum number of characters; None means no maximum.
FORMATS: dict[str, tuple[str, int, int | None]] = {
    "date": (DAY, 10, 10),
    "date-time": (f"{DAY}T{TIME}", 20, 32),
    "time": (TIME, 9, 21),
    "uuid": ("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", 36, 36),
    "email": (rf"{LOCAL}(?:\.{LOCAL}){{0,2}}@{HOST}", 6, 167),
    "hostname": (HOST, 4, 104),
    "ipv4": (rf"{OCTET}(?:\.{OCTET}){{3}}", 7, 15),
    "uri": (rf"https?://{HOST}(?::[1-9][0-9]{{0,3}})?(?:/{URL_CHARACTER}*)?(?:[?#]{URL_CHARACTER}*)?", 11, None),
}

# The characters that a class or `.` may match: not escaped in JSON, no line separator, one UTF-16 code unit.
SIMPLE = r'[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029\U00010000-\U0010ffff]'
CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": " "}
COMPLEMENTS = {"D": "[!#-/:-\\[\\]-~]", "W": "[!#-/:-@\\[\\]\\^`{-~]", "S": "[!#-\\[\\]-~]"}  # ASCII characters only
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
REPEATED = re.compile(r"[*+?]|\{([0-9]{1,4})(,?)([0-9]{0,4})\}")
DEEPEST = 20  # nested groups


def json_text(value: Any) -> str:
    """Return a value as JSON, in ASCII if UTF-8 cannot encode it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.encode(errors="ignore").decode() == text else json.dumps(value)


def literal(text: str) -> str:
    """Return the regex that matches exactly this text."""
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


def union(parts: list[str]) -> str | None:
    """Return the regex that matches what any of `parts` matches; None if there are none."""
    return f"(?:{'|'.join(parts)})" if len(parts) > 1 else parts[0] if parts else None


def comma_separated(item: str, least: int, most: int | None) -> str:
    """Return the regex of `least` to `most` items with commas between them; None means no maximum."""
    if most == 0:
        return ""
    text = f"{item}(?:{COMMA}{item}){{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
    return text if least else f"(?:{text})?"


@cache
def any_value(depth: int) -> str:
    """Return the regex of any value with at most `depth` levels of objects and arrays."""
    scalars = f"(?:{STRING}|{NUMBER}|true|false|null"
    if not depth:
        return f"{scalars})"
    inner = any_value(depth - 1)
    items = comma_separated(inner, 0, None)
    members = comma_separated(f"{STRING}{SPACE}:{SPACE}{inner}", 0, None)
    return rf"{scalars}|\[{SPACE}{items}{SPACE}\]|\{{{SPACE}{members}{SPACE}\}})"


def number(low: tuple[Decimal, bool] | None, high: tuple[Decimal, bool] | None, whole: bool) -> str | None:
    """Return the regex of the numbers, or integers if `whole`, between two limits; None if there are none.

    A limit is a pair of its value and whether the value itself is excluded; None means no limit.
    """
    if low is None and high is None:
        return INTEGER if whole else NUMBER
    zero = (Decimal(0), False)
    parts: list[str | None] = []
    if high is None or high[0] >= 0:
        parts.append(_positive(zero if low is None or low[0] < 0 else low, high, whole))
    if low is None or low[0] < 0:
        mirrored = zero if high is None or high[0] >= 0 else (-high[0], high[1])
        least = (Decimal(0), True) if mirrored == zero else mirrored  # exclude -0
        part = _positive(least, None if low is None else (-low[0], low[1]), whole)
        parts.append(part and f"-{part}")
    return union([part for part in parts if part is not None])


def _positive(low: tuple[Decimal, bool], high: tuple[Decimal, bool] | None, whole: bool) -> str | None:
    """Return the regex of the numbers between two limits that are not negative; None if there are none."""
    first, last = int(low[0]), None if high is None else int(high[0])
    if whole:
        if low[0] != first or low[1]:
            first += 1
        if high is not None and last is not None and high == (last, True):
            last -= 1
        return _naturals(first, last)
    if last is not None and last < first:
        return None
    # Three cases: the whole part is that of `low`, lies between those of both limits, or is that of `high`.
    above = _digits(low[0])
    below = None if high is None else _digits(high[0])
    parts = [_with_fraction(first, above, low[1], below if last == first else None, high is not None and high[1])]
    if last != first:
        parts.append(_with_fraction_any(_naturals(first + 1, None if last is None else last - 1)))
    if high is not None and last is not None and last > first:
        parts.append(_with_fraction(last, "", False, below, high[1]))
    return union([part for part in parts if part is not None])


def _digits(value: Decimal) -> str:
    """Return the decimals of a value, without trailing zeros."""
    return format(value, "f").partition(".")[2].rstrip("0")


def _with_fraction_any(whole: str | None) -> str | None:
    """Return the regex of the numbers whose whole part matches `whole`, with or without decimals."""
    return whole and rf"{whole}(?:\.[0-9]{{1,{DECIMALS}}})?"


def _with_fraction(whole: int, low: str, above: bool, high: str | None, below: bool) -> str | None:
    """Return the regex of the numbers with this whole part whose decimals are between `low` and `high`.

    `above` excludes `low`, and `below` excludes `high`; a `high` of None means no limit.
    """
    tails = _tails(low, above, high, below, DECIMALS, empty=False)
    if low or above or (high == "" and below):  # the whole part alone is not within the limits
        return tails and rf"{whole}\.{tails}"
    return rf"{whole}(?:\.{tails})?" if tails else str(whole)


def _tails(low: str, above: bool, high: str | None, below: bool, left: int, empty: bool = True) -> str | None:
    """Return the regex of at most `left` decimals between limits, compared digit by digit; None if there are none.

    `above` excludes `low`, and `below` excludes `high`; a `high` of None means no limit. Unless
    `empty`, there must be at least one decimal.
    """
    if high == "":  # only zeros may follow
        return None if low or above or below else "0*" if empty else f"0{{1,{DECIMALS}}}"
    if high is None and not low and not above:
        return f"[0-9]{{{0 if empty else 1},{left}}}"
    may_end = empty and not low and not above
    if left == 0:
        return "" if may_end else None
    groups: dict[tuple[str, bool, str | None], list[int]] = {}
    least, most = int(low[:1] or 0), 9 if high is None else int(high[0])
    for digit in range(least, most + 1):
        lowest, upper = digit == least, high[1:] if high is not None and digit == most else None
        groups.setdefault((low[1:] if lowest else "", lowest and above, upper), []).append(digit)
    parts: list[str] = []
    for (next_low, next_above, next_high), digits in groups.items():
        tail = _tails(next_low, next_above, next_high, below, left - 1)
        if tail is not None:
            parts.append(f"[{digits[0]}-{digits[-1]}]{tail}")
    text = union(parts)
    return text and f"(?:{text})?" if may_end else text


def _naturals(first: int, last: int | None) -> str | None:
    """Return the regex of the natural numbers from `first` to `last`; None if there are none."""
    if last is not None and first > last:
        return None
    length = len(str(first))
    if last is None:
        more = f"[1-9][0-9]{{{length},}}"
        return union([_between(str(first), "9" * length), more])
    parts: list[str] = []
    while first <= last:
        end = min(last, 10 ** len(str(first)) - 1)
        parts.append(_between(str(first), str(end)))
        first = end + 1
    return union(parts)


def _between(low: str, high: str) -> str:
    """Return the regex of the numbers from `low` to `high`, which have the same number of digits."""
    if low == high:
        return low
    if len(low) == 1:
        return f"[{low}-{high}]"
    first, last, rest = int(low[0]), int(high[0]), len(low) - 1
    if first == last:
        return low[0] + _between(low[1:], high[1:])
    parts: list[str] = []
    if low[1:].strip("0"):
        parts.append(low[0] + _between(low[1:], "9" * rest))
        first += 1
    tail = None
    if high[1:].strip("9"):
        tail = high[0] + _between("0" * rest, high[1:])
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}][0-9]{{{rest}}}")
    return union([*parts, *([tail] if tail else [])]) or ""


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
