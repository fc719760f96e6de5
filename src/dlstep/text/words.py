"""Short texts for tokens and counts that fit a terminal of 80 columns."""

from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from typing import Any

from ..core import Spec

WIDTH = 80
MASKED = "\N{MIDDLE DOT}"
_REPLACED = {"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"}


def piece(spec: Spec, token: int | None) -> str:
    """Return the display text of a token. Tokens without text appear as their number."""
    if token is None:
        return MASKED
    encoded = spec.pieces[token] if 0 <= token < len(spec.pieces) else b""
    if token in spec.eos_ids:
        return "\N{END OF PROOF}"
    return printable(encoded.decode("utf-8", errors="replace")) or f"#{token} "


def printable(text: str) -> str:
    """Return the text on one line, without control characters."""
    if text.isprintable():
        return text
    return "".join(_REPLACED.get(c, c if c.isprintable() else "\N{REPLACEMENT CHARACTER}") for c in text)


def harmless(text: str) -> str:
    """Return the text without control characters except newlines and tabs."""
    return "".join([c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text])


class Pieces:
    """A converter of ids to texts. A character of several ids belongs to the last."""

    def __init__(self, pieces: tuple[bytes, ...]) -> None:
        self._pieces = pieces
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def texts(self, tokens: Iterable[int | None], *, end: bool = True) -> list[str | None]:
        """Return the text of each id (None: masked). Without `end`, the next call continues."""
        texts: list[str | None] = []
        decoder, pieces = self._decoder, self._pieces
        decoding = True  # whether bytes may be undecoded: those of the last ids, or of an earlier call
        for token in tokens:
            if token is not None and token < len(pieces):
                texts.append(decoder.decode(pieces[token]))
                decoding = True
                continue
            if decoding:
                self._flush(texts)
                decoding = False
            texts.append(None if token is None else "")
        if end:
            self._flush(texts)
        return texts

    def certain(self, tokens: Sequence[int]) -> list[str | None]:
        """Return the text of each id, but not of the last one if its character is incomplete: start the next call with it."""
        texts, state = self.texts(tokens[:-1], end=False), self._decoder.getstate()
        texts += self.texts(tokens[-1:], end=False)
        if self._decoder.getstate()[0]:
            self._decoder.setstate(state)
            del texts[-1:]
        return texts

    def _flush(self, texts: list[str | None]) -> None:
        """Append undecoded bytes of a run to the text of its last id."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if rest and texts:
            texts[-1] = (texts[-1] or "") + rest


def print_pretty(value: object, printer: Any, cycle: bool) -> None:
    """Print the `str` of a value in a text console of IPython, which calls it as `_repr_pretty_`."""
    del cycle
    printer.text(str(value))


def counted(number: int, noun: str) -> str:
    """Return `1 request`, `3 requests`, `2 forward passes`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def clipped(text: str, width: int = WIDTH) -> str:
    """Return the text, with its end omitted if it is longer than `width`."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def one_line(text: object) -> str:
    """Return a text, or the message of an exception, on one line, without lines that begin with a tab (ids of Ray)."""
    return " ".join(" ".join([line for line in str(text).splitlines() if line[:1] != "\t"]).split())
