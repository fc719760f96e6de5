"""Streams of answers: final pieces of text, and drafts of text that may still change."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .core import Cell, DlstepError, Spec, Update
from .engine.shared_decode import SharedDecode, Subscription
from .text.detokenize import TextStream, Tokenizer
from .text.output import Output, Prompt, output_of
from .text.words import Pieces

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Draft:
    """An answer after a forward pass: the new final text, and the text of each window position.

    The text of a masked position is None. The text of an unmasked position may still change, or
    vanish if the answer ends before it. A character of several tokens is at the last of them.
    """

    piece: str
    window: tuple[str | None, ...]


class Drafts:
    """A converter from updates of one request to drafts; joined pieces are the output's text."""

    def __init__(self, tokenizer: Tokenizer | None, spec: Spec, stops: tuple[str, ...]) -> None:
        self._text = TextStream(tokenizer, stops)
        self._spec = spec

    def piece(self, update: Update) -> list[str]:
        """Return the text that `update` makes final, if any. Linear in the new tokens."""
        piece = self._text.push(update.tokens) if update.finish_info is None else self._text.close(update.sequence.answer)
        return [piece] if piece else []

    def draft(self, update: Update) -> list[Draft]:
        """Return the draft after `update`; none if the answer ends without new text.

        Linear in the new tokens and the window.
        """
        piece = "".join(self.piece(update))
        if update.finish_info is None:
            return [Draft(piece, window_texts(update.window, self._spec.pieces))]
        return [Draft(piece, ())] if piece else []


def window_texts(cells: Iterable[Cell], pieces: tuple[bytes, ...]) -> tuple[str | None, ...]:
    """Return the text of each cell, or None. Consecutive unmasked cells may share a character."""
    return tuple(Pieces(pieces).texts(cell.token for cell in cells))


class Stream(Generator[Item, None, Output], Generic[Item]):
    """An unfinished answer. Iteration yields items; `yield from` and `output` give the output.

    Closing or collecting the stream aborts an unfinished request. An interrupt while the stream
    waits leaves it usable, but an item may be lost; an interrupt while it converts an update closes
    it, as an exception closes a generator.
    """

    def __init__(
        self,
        shared: SharedDecode,
        subscription: Subscription,
        take: Callable[[Update], Iterable[Item]],
        prompt: Prompt,
        tokenizer: Tokenizer | None,
    ) -> None:
        self._shared, self._subscription, self._take = shared, subscription, take
        self._prompt, self._tokenizer = prompt, tokenizer
        self._items: deque[Item] = deque()
        self._converted: Update | None = None  # the last update whose items went to `_items`
        self._converting = self._closed = False

    @property
    def output(self) -> Output:
        """The final part of the answer."""
        if self._subscription.latest is None:
            raise ValueError("the answer has no text before its first forward pass: iterate the stream first")
        return output_of(self._subscription.sequence, self._prompt, self._tokenizer)

    def send(self, value: None) -> Item:
        """Return the next item.

        Raises ValueError for a request that could never run, and DlstepError if the model fails on it.
        """
        del value
        while not self._items:
            if self._converting:  # an interrupted call converted only part of an update
                self.close()
            if self._closed or (self._converted is not None and self._converted.finish_info is not None):
                raise StopIteration(self.output if self._subscription.ended else None)
            update = self._unconverted()
            if update is None:
                self._shared.advance(self._subscription, lambda: self._closed or self._unconverted() is not None)
                continue
            if update.sequence.finish in ("rejected", "error"):
                self._closed = True
                raise (ValueError if update.sequence.finish == "rejected" else DlstepError)(update.sequence.error)
            self._converting = True
            self._items.extend(self._take(update))
            self._converted, self._converting = update, False
        return self._items.popleft()

    def _unconverted(self) -> Update | None:
        """Return the oldest update that is not converted yet, if there is one."""
        updates = self._subscription.updates
        if len(updates) > 1 and updates[0] is self._converted:  # the last one stays: `Feed.latest`
            updates.popleft()
        return updates[0] if updates and updates[0] is not self._converted else None

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Item:
        """Abort the request and raise the exception, like a generator that does not catch it."""
        self.close()
        error = typ if val is None else val
        raise error if tb is None else error.with_traceback(tb)

    def close(self) -> None:
        """Abort the request if it is unfinished, and end the stream."""
        self._closed = True
        self._items.clear()
        self._shared.abandon(self._subscription)
