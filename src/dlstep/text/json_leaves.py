"""Regexes of JSON values without subschemas: strings, numbers between limits, formats, and any value.

The dialect is that of Rust's `regex` crate. Every regex can be concatenated without parentheses.
"""

import json
import re
from decimal import Decimal
from functools import cache
from typing import Any

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
