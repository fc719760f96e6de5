"""Lines of positions and items that fit a terminal."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from textwrap import wrap

from ..text.words import WIDTH, clipped, counted

KEPT = "\N{NO-BREAK SPACE}"  # stands for a space at which `wrap` must not break


def listed(items: Sequence[object], most: int = 8) -> str:
    """Return the first `most` items separated by commas, and the number of the others."""
    shown = ", ".join(map(str, items[:most]))
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def run_text(first: int, last: int) -> str:
    """Return `19`, or `19 to 24`."""
    return str(first) if first == last else f"{first} to {last}"


def runs_text(positions: Iterable[int]) -> str:
    """Return positions as text: `19 to 24, 30`."""
    groups = groupby(enumerate(positions), lambda item: item[1] - item[0])  # equal within a contiguous run
    runs = [[position for _, position in group] for _, group in groups]
    return listed([run_text(run[0], run[-1]) for run in runs], most=4)


def more(number: int, noun: str) -> list[str]:
    """Return a line with the number of omitted things; empty if there are none."""
    return [f"and {counted(number, f'more {noun}')}"] if number > 0 else []


def packed(items: Iterable[str], head: str = "") -> list[str]:
    """Wrap `head` and the items, separated by commas, to lines. Items are never split."""
    text = ", ".join(item.replace(" ", KEPT) for item in items)
    lines = wrap(
        f"{head.replace(' ', KEPT)}{text}", WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [clipped(line.replace(KEPT, " ")) for line in lines]
