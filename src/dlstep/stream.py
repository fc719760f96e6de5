"""Streams of answers: final pieces of text, and drafts of text that may still change."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .core import DlstepError, Spec, Texts, Update
from .engine.decode import SharedDecode, Subscription
from .text.detokenize import TextStream, Tokenizer
from .text.output import Output, Prompt, output_of
from .text.words import Pieces

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Draft:
    """An answer after a forward pass: the new final text, and the window, which may still change."""

    piece: str
    """Text that has become final."""
    window: tuple[str | None, ...]
    """Text of each window position; None if it is masked. A character of several tokens is at the last
    of them. Text may vanish if the answer ends before it."""


class Drafts:
    """A converter from updates of one request to drafts; joined pieces are the output's text.

    Args:
        tokenizer: Tokenizer of the model; None: all texts are empty.
        spec: Facts of the model.
        stops: Stop strings of the request.
    """

    def __init__(self, tokenizer: Tokenizer | None, spec: Spec, stops: Texts) -> None:
        self._text = TextStream(tokenizer, stops)
        self._spec = spec

    def piece(self, update: Update) -> list[str]:
        """Return the text that an update makes final, if any. Linear in the new tokens.

        Args:
            update: The next update of the request.
        """
        piece = self._text.push(update.tokens) if update.finish_info is None else self._text.close(update.sequence.answer)
        return [piece] if piece else []

    def draft(self, update: Update) -> list[Draft]:
        """Return the draft after an update; none if the answer ends without new text.

        Linear in the new tokens and the window.

        Args:
            update: The next update of the request.
        """
        piece = "".join(self.piece(update))
        if update.finish_info is None:
            return [Draft(piece, window_texts(update.window[0], self._spec.pieces))]
        return [Draft(piece, ())] if piece else []


def window_texts(tokens: Iterable[int | None], pieces: tuple[bytes, ...]) -> tuple[str | None, ...]:
    """Return the text of each position of a window, or None if it is masked.

    Consecutive unmasked positions may share a character.

    Args:
        tokens: The token of each position, in order; None if it is masked.
        pieces: The bytes of each token id.
    """
    return tuple(Pieces(pieces).texts(tokens))


class Stream(Generator[Item, None, Output], Generic[Item]):
    """An unfinished answer. Iteration yields items; `yield from` and `output` give the output.

    `LLM.stream` and `LLM.stream_drafts` create streams. Closing or collecting a stream aborts an
    unfinished request. As for every generator, an exception during an iteration, such as
    KeyboardInterrupt, closes the stream.

    Args:
        shared: The decode that runs the request.
        subscription: The updates of the request.
        take: Conversion of an update to items.
        prompt: The prompt, for the output.
        tokenizer: Tokenizer of the model.
    """

    def __init__(
        self,
        shared: SharedDecode,
        subscription: Subscription,
        take: Callable[[Update], Iterable[Item]],
        prompt: Prompt,
        tokenizer: Tokenizer | None,
    ) -> None:
        self._subscription, self._prompt, self._tokenizer = subscription, prompt, tokenizer
        self._spec = shared.state.config.spec
        self._items = _items(shared, subscription, take)

    @property
    def output(self) -> Output:
        """The final part of the answer."""
        if self._subscription.latest is None:
            raise ValueError("the answer has no text before its first forward pass: iterate the stream first")
        subscription = self._subscription
        return output_of(subscription.sequence, self._prompt, self._tokenizer, self._spec, subscription.weights_version)

    def send(self, value: None) -> Item:
        """Return the next item.

        Args:
            value: Ignored; generators have this parameter.

        Raises:
            ValueError: For a request that could never run.
            DlstepError: If the model fails on the request, or in a forward pass of another call.
        """
        del value
        if not self._subscription.closed:
            for item in self._items:
                return item
        raise StopIteration(self.output if self._subscription.ended else None)

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Item:
        """Abort the request and raise the exception, like a generator that does not catch it.

        Args:
            typ: The exception, or its class.
            val: The exception, if `typ` is its class.
            tb: Traceback to raise it with.
        """
        self.close()
        error = typ if val is None else val
        raise error if tb is None else error.with_traceback(tb)

    def close(self) -> None:
        """Abort the request if it is unfinished, and end the stream."""
        self._subscription.closed = True


def _items(shared: SharedDecode, subscription: Subscription, take: Callable[[Update], Iterable[Item]]) -> Generator[Item]:
    """Yield the items of each update of a request. Not a method: a stream that refers to itself is not freed at once."""
    try:
        while (update := shared.next_update(subscription)) is not None:
            if update.sequence.finish in ("rejected", "error"):
                raise (ValueError if update.sequence.finish == "rejected" else DlstepError)(update.sequence.error)
            yield from take(update)
    finally:
        subscription.closed = True
