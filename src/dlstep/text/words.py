"""Short texts of values: tokens, positions, counts, and lines that fit a terminal of 80 columns."""

from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence

from ..core.spec import Spec

WIDTH = 80
UNDECIDED = "\N{MIDDLE DOT}"
_REPLACED = {"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"}


def piece(spec: Spec, token: int | None) -> str:
    """The text of a token as it is shown: a special one, or one of an unknown tokenizer, by its number."""
    if token is None:
        return UNDECIDED
    known = spec.pieces[token] if 0 <= token < len(spec.pieces) else b""
    if token in spec.eos_ids:
        return "\N{END OF PROOF}"
    return printable(known.decode("utf-8", errors="replace")) or f"#{token} "


def printable(text: str) -> str:
    """The text on one line, without characters that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(_REPLACED.get(c, c if c.isprintable() else "\N{REPLACEMENT CHARACTER}") for c in text)


def harmless(text: str) -> str:
    """The text with its lines, but without characters that a terminal would act on."""
    return "".join([c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text])


class Pieces:
    """Turns ids into texts, run by run; a character that several ids make is at the last of them. Special ids have no text."""

    def __init__(self, pieces: tuple[bytes, ...]) -> None:
        self._pieces = pieces
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def texts(self, tokens: Iterable[int | None], *, end: bool = True) -> list[str | None]:
        """The text of each id, None where it is undecided. With `end` false, the next call goes on from here."""
        texts: list[str | None] = []
        decoder, pieces = self._decoder, self._pieces
        for token in tokens:
            if token is not None and token < len(pieces):
                texts.append(decoder.decode(pieces[token]))
                continue
            self._flush(texts)
            texts.append(None if token is None else "")
        if end:
            self._flush(texts)
        return texts

    def _flush(self, texts: list[str | None]) -> None:
        """Give the rest of a run to its last id."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if rest and texts:
            texts[-1] = (texts[-1] or "") + rest


def counted(number: int, noun: str) -> str:
    """`1 request`, `3 requests`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def clipped(text: str, width: int = WIDTH) -> str:
    """The text, with its end left out where it is longer than `width`."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def clipped_front(text: str, width: int) -> str:
    """The text, with its beginning left out where it is longer than `width`."""
    return text if len(text) <= width else f"...{text[len(text) - max(0, width - 3) :]}"


def listed(items: Sequence[object], most: int = 8) -> str:
    """The items with commas between them, and how many more there are than `most`."""
    shown = ", ".join(map(str, items[:most]))
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending positions as first and last ones of runs without a gap."""
    found: list[tuple[int, int]] = []
    for position in positions:
        if found and position == found[-1][1] + 1:
            found[-1] = (found[-1][0], position)
        else:
            found.append((position, position))
    return found


def run_text(first: int, last: int) -> str:
    """`19`, `19 to 24`."""
    return str(first) if first == last else f"{first} to {last}"


def runs_text(positions: Iterable[int], most: int = 4) -> str:
    """Ascending positions in few words: `19 to 24, 30`."""
    return listed([run_text(first, last) for first, last in runs(positions)], most)


def more(number: int, noun: str) -> list[str]:
    """A line that says how many things are left out; none if none are."""
    return [f"and {counted(number, f'more {noun}')}"] if number > 0 else []


def packed(items: Iterable[str], head: str = "", separator: str = ", ", indent: str = "  ") -> list[str]:
    """The items after `head`, with `separator` between them, on as many lines as fit the width; no item is broken."""
    lines, empty = [head], True
    for item in items:
        added = item if empty else f"{separator}{item}"
        if not empty and len(lines[-1]) + len(added) + len(separator.rstrip()) > WIDTH:
            lines[-1] += separator.rstrip()
            lines.append(indent)
            added = item
        lines[-1] += added
        empty = False
    return [clipped(line) for line in lines]


def fitting(items: Sequence[str], head: str = "", separator: str = "  ", width: int = WIDTH) -> str:
    """As many of the items as fit on a line after `head`, and how many more there are."""
    for count in range(len(items), 0, -1):
        rest = [f"and {len(items) - count} more"] if count < len(items) else []
        line = head + separator.join([*items[:count], *rest])
        if len(line) <= width:
            return line
    return clipped(f"{head}{len(items)}", width)
