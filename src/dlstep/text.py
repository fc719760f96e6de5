"""Between text and tokens: whole answers, and pieces of an answer that is still growing."""

from collections.abc import Sequence as Items
from typing import Protocol

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what a decoder makes of the first bytes of a character


class Tokenizer(Protocol):
    """The part of a `transformers` tokenizer that is used here."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str | list[str]: ...


def decode(tokenizer: Tokenizer | None, tokens: Items[int]) -> str:
    """The text of `tokens` without special ones; empty when there is no tokenizer."""
    if tokenizer is None:
        return ""
    text = tokenizer.decode(list(tokens), skip_special_tokens=True)
    assert isinstance(text, str), "a flat list of ids decodes to one text"
    return text


def cut(text: str, stops: tuple[str, ...]) -> str:
    """`text` up to the first of `stops`."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]


def held_back(text: str, stops: tuple[str, ...]) -> int:
    """How many characters at the end of `text` may be the beginning of one of `stops`."""
    longest = min(len(text), max((len(stop) - 1 for stop in stops), default=0))
    return next((n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in stops)), 0)


class TextStream:
    """Turns tokens that arrive in pieces into text that arrives in pieces.

    All pieces joined are the text of all tokens, cut at the first stop string. No piece ends inside a character, and none
    holds text that could become a stop string. A push costs the tokens since the piece before.
    """

    def __init__(self, tokenizer: Tokenizer | None, stops: tuple[str, ...]) -> None:
        self._tokenizer, self._stops = tokenizer, stops
        self._tokens: list[int] = []
        # The text of tokens may depend on the ones before: what is new is the text from `_begin` on that was not there
        # when only the tokens up to `_known` had come.
        self._begin = self._known = 0
        self._waiting = ""
        self._sent = 0

    def push(self, tokens: Items[int]) -> str:
        """The text that `tokens` make certain."""
        self._tokens.extend(tokens)
        before = decode(self._tokenizer, self._tokens[self._begin : self._known])
        now = decode(self._tokenizer, self._tokens[self._begin :])
        if len(now) > len(before) and not now.endswith(UNFINISHED):
            self._waiting += now[len(before) :]
            self._begin, self._known = self._known, len(self._tokens)
        certain = len(self._waiting) - held_back(self._waiting, self._stops)
        piece, self._waiting = self._waiting[:certain], self._waiting[certain:]
        self._sent += len(piece)
        return piece

    def close(self, tokens: Items[int]) -> str:
        """What is left of the answer, which has all of `tokens`."""
        piece = cut(decode(self._tokenizer, tokens), self._stops)[self._sent :]
        self._sent += len(piece)
        return piece
