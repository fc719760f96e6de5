"""Lines of positions and items that fit a terminal."""

from collections.abc import Iterable, Sequence

from ..text.words import WIDTH, clipped, counted


def listed(items: Sequence[object], most: int = 8) -> str:
    """Return the first `most` items separated by commas, and the number of the others."""
    shown = ", ".join(map(str, items[:most]))
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Return the (first, last) pairs of contiguous runs in ascending positions."""
    ranges: list[tuple[int, int]] = []
    for position in positions:
        if ranges and position == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], position)
        else:
            ranges.append((position, position))
    return ranges


def run_text(first: int, last: int) -> str:
    """Return `19`, or `19 to 24`."""
    return str(first) if first == last else f"{first} to {last}"


def runs_text(positions: Iterable[int]) -> str:
    """Return ascending positions as text: `19 to 24, 30`."""
    return listed([run_text(first, last) for first, last in runs(positions)], most=4)


def more(number: int, noun: str) -> list[str]:
    """Return a line with the number of omitted things; empty if there are none."""
    return [f"and {counted(number, f'more {noun}')}"] if number > 0 else []


def packed(items: Iterable[str], head: str = "") -> list[str]:
    """Wrap `head` and the items, separated by commas, to lines. Items are never split."""
    lines, empty = [head], True
    for item in items:
        added = item if empty else f", {item}"
        if not empty and len(lines[-1]) + len(added) + len(",") > WIDTH:
            lines[-1] += ","
            lines.append("  ")
            added = item
        lines[-1] += added
        empty = False
    return [clipped(line) for line in lines]


def fitting(items: Sequence[str], head: str = "") -> str:
    """Return a line with `head`, as many items as fit, and the number of the others."""
    for count in range(len(items), 0, -1):
        rest = [f"and {len(items) - count} more"] if count < len(items) else []
        line = head + "  ".join([*items[:count], *rest])
        if len(line) <= WIDTH:
            return line
    return clipped(f"{head}{len(items)}")
