"""Limits of regular expressions in a tokenizer, which a backtracking engine (Oniguruma) runs on every prompt.

Published expressions are alternatives of a few repeated character classes. This module refuses whatever can take
exponential time or memory: repeated groups whose content varies in length, references to groups, and counts that expand
to a large expression. Every other expression takes polynomial time, or ends with the engine's own error after ten
million steps of one match.
"""

import re
from dataclasses import dataclass

LONGEST = 10_000  # letters
MOST_WRITTEN = 50_000  # items of the expression with its counts expanded
MOST_REPEATS = 6  # repeated items in one alternative; their number is the exponent of the time
COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")
GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!]|<\w+>|[imsu]*(?:-[imsu]+)?:)|\((?!\?)")
FLAGS = re.compile(r"\(\?[imsu]*(?:-[imsu]+)?\)")
ESCAPE = re.compile(r"\\(?:[pPxo]\{[^}]*\}|.)", re.DOTALL)
REFERENCES = frozenset("123456789kgKyY")


@dataclass(slots=True)
class _Group:
    """A group, as far as it has been read.

    `written` counts its items, with counts expanded; `repeats` counts the repeated items of the current alternative,
    and `most` is the largest such number of the earlier alternatives. `varies`: the length of what it matches can vary.
    """

    written: int = 0
    repeats: int = 0
    most: int = 0
    varies: bool = False
    last: "_Group | int | None" = None  # the item that a quantifier would repeat


def regex_problem(pattern: str) -> str | None:
    """Return why the expression is refused, as the end of a sentence; None if it is allowed."""
    if len(pattern) > LONGEST:
        return f"has {len(pattern)} characters, the limit is {LONGEST}"
    open_groups, place = [_Group()], 0
    while place < len(pattern):
        group, letter = open_groups[-1], pattern[place]
        problem = None
        if letter in "*+?" or (letter == "{" and COUNT.match(pattern, place)):
            place, problem = _repeat(group, pattern, place)
        elif letter == "(":
            place, problem = _open(open_groups, pattern, place)
        elif letter == ")":
            place, problem = _close(open_groups, place)
        elif letter == "|":
            group.most, group.repeats, group.varies, group.last = max(group.most, group.repeats), 0, True, None
            place += 1
        else:
            place, problem = _item(pattern, place)
            _add(group, 1, 1)
        if problem:
            return problem
        if open_groups[-1].repeats > MOST_REPEATS:
            return f"repeats more than {MOST_REPEATS} items in a row"
        if open_groups[-1].written > MOST_WRITTEN:
            return f"has counts that stand for more than {MOST_WRITTEN} items"
    return None if len(open_groups) == 1 else "opens a group that it does not close"


def _open(open_groups: list[_Group], pattern: str, place: int) -> tuple[int, str | None]:
    """Open a group, or skip flags. Return the place after its beginning, and what is wrong with it (None: nothing)."""
    if flags := FLAGS.match(pattern, place):
        open_groups[-1].last = None
        return flags.end(), None
    if not (opened := GROUP.match(pattern, place)):
        return place, f"has a group {pattern[place : place + 8]!r} of a kind that is not supported"
    open_groups.append(_Group())
    return opened.end(), None


def _close(open_groups: list[_Group], place: int) -> tuple[int, str | None]:
    """Close the innermost group. Return the place after its end, and what is wrong with it (None: nothing)."""
    if len(open_groups) == 1:
        return place, "closes a group that it does not open"
    closed = open_groups.pop()
    closed.repeats = max(closed.most, closed.repeats)
    _add(open_groups[-1], closed, closed.written)
    return place + 1, None


def _add(group: _Group, item: "_Group | int", written: int) -> None:
    """Add an item to a group."""
    group.written += written
    group.last = item
    if isinstance(item, _Group):
        group.repeats += item.repeats
        group.varies |= item.varies


def _repeat(group: _Group, pattern: str, place: int) -> tuple[int, str | None]:
    """Apply a quantifier to the last item. Return the place after it, and what is wrong with it (None: nothing)."""
    item, group.last = group.last, None
    if item is None:
        return place, f"repeats nothing, or a repetition, at letter {place}"
    low, high, end = _bounds(pattern, place)
    if end < len(pattern) and pattern[end] in "?+":
        end += 1  # lazy or possessive
    if low != high and high != 1:  # "?" is allowed: published ones repeat line ends, "(?:\r?\n)+"
        group.varies = True
    if (low, high) in ((0, 1), (1, 1), (0, 0)):
        return end, None
    if isinstance(item, _Group) and item.varies:
        return end, "repeats a group whose content varies in length, which can take exponential time"
    if high is None or high > low:
        group.repeats += 1
    group.written += (max(high or low, 1) - 1) * (item.written if isinstance(item, _Group) else 1)
    return end, None


def _bounds(pattern: str, place: int) -> tuple[int, int | None, int]:
    """Return the least and the largest count of a quantifier (None: no limit), and the place after it."""
    if pattern[place] != "{":
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[pattern[place]]
        return low, high, place + 1
    match = COUNT.match(pattern, place)
    assert match is not None, "a quantifier was found"
    first, comma, second = match.groups()
    low = int(first or 0)
    return low, (int(second) if second else None) if comma else low, match.end()


def _item(pattern: str, place: int) -> tuple[int, str | None]:
    """Return the place after one letter, escape or character class, and what is wrong with it (None: nothing)."""
    if pattern[place] == "\\":
        match = ESCAPE.match(pattern, place)
        if match is None or pattern[place + 1] in REFERENCES:
            return place, f"refers to a group or keeps a part by {pattern[place : place + 2]!r}, which is not supported"
        return match.end(), None
    if pattern[place] != "[":
        return place + 1, None
    depth = 0
    while place < len(pattern):
        letter = pattern[place]
        depth += (letter == "[") - (letter == "]")
        place += 2 if letter == "\\" else 1
        if depth == 0:
            return place, None
    return place, "opens a character class that it does not close"
