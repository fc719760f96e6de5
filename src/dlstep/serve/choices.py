"""A choice is an answer in text: what of it is new since the last chunk, and what the whole of it is."""

from dataclasses import dataclass
from math import log

from ..core import Cell, Spec
from ..stream import window_texts
from ..text import TextStream, cut, decode
from .front import Texts
from .tickets import Ticket

# The engine's reasons as OpenAI's clients know them; the true one is in `dlstep.finish_reason`.
FINISH = {"stop": "stop", "repetition": "stop", "length": "length", "nfe_limit": "length", "abort": "length"}
LEAST = 1e-30  # probability whose logarithm stands for smaller ones, which JSON could not hold


@dataclass(frozen=True, slots=True)
class TokenLog:
    """A settled token as logprobs tell it; `offset` is that of its text in the answer."""

    text: str
    logprob: float
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The news of a choice: text, tokens with their probabilities, the window behind them, and whether it has ended."""

    text: str
    logs: tuple[TokenLog, ...]
    dlstep: dict[str, object]
    ended: bool


class Choice:
    """Reads one ticket. Whoever reads slowly gets more text at once and the newest draft only."""

    def __init__(self, index: int, ticket: Ticket, texts: Texts, spec: Spec) -> None:
        self.index, self.ticket = index, ticket
        self._texts, self._spec = texts, spec
        self._stream: TextStream | None = None
        self._read = 0  # tokens
        self._logged = 0  # tokens
        self._offset = 0  # characters of the logged tokens
        self._seq = 0
        self._told_nfe = 0
        self.ended = False  # and told so

    @property
    def text(self) -> str:
        """The whole answer, once it has ended."""
        return cut(decode(self._texts.tokenizer, self.ticket.tokens), self.ticket.submit.params.stop)

    @property
    def finish(self) -> str:
        """The reason of its end as OpenAI has it."""
        assert self.ticket.ending is not None, "it has ended"
        return FINISH[self.ticket.ending.reason]

    def piece(self) -> Piece | None:
        """The news since the last call, or None if there is nothing that a client wants to hear."""
        ticket, drafts = self.ticket, self.ticket.submit.drafts
        if self.ended or (ticket.nfe == self._told_nfe and ticket.ending is None):
            return None
        if self._stream is None:
            self._stream = TextStream(self._texts.tokenizer, ticket.submit.params.stop)
        self.ended = ticket.ending is not None
        new, self._read = ticket.tokens[self._read :], len(ticket.tokens)
        text = self._stream.close(ticket.tokens) if self.ended else self._stream.push(new)
        self._told_nfe = ticket.nfe
        if not (text or self.ended or drafts):
            return None
        piece = Piece(text, self.logs(), self._event(), self.ended)
        self._seq += 1
        return piece

    def logs(self) -> tuple[TokenLog, ...]:
        """The tokens that were not told of yet, if probabilities were asked for."""
        if not self.ticket.submit.probabilities:
            return ()
        tokens, probabilities = self.ticket.tokens[self._logged :], self.ticket.probabilities[self._logged :]
        self._logged += len(tokens)
        found: list[TokenLog] = []
        cells = [Cell(token, probability) for token, probability in zip(tokens, probabilities, strict=True)]
        for text, cell in zip(window_texts(cells, self._spec.pieces), cells, strict=True):
            found.append(TokenLog(text or "", log(max(cell.probability, LEAST)), self._offset))
            self._offset += len(text or "")
        return tuple(found)

    def _event(self) -> dict[str, object]:
        """The object `dlstep` of a chunk."""
        ticket = self.ticket
        if not ticket.submit.drafts:
            return {"index": self.index, **self.summary()} if self.ended else {}
        cells = [Cell(*cell) for cell in ticket.cells]
        texts = window_texts(cells, self._spec.pieces)
        shown = [
            [position, cell.token, cell.probability, text]
            for position, (cell, text) in enumerate(zip(cells, texts, strict=True), len(ticket.tokens))
        ]
        told = {"index": self.index, "seq": self._seq, "step": ticket.steps, "nfe": ticket.nfe, "settled": len(ticket.tokens)}
        return {**told, "cells": shown, **(self.summary() if self.ended else {})}

    def summary(self) -> dict[str, object]:
        """How the answer ended and what it took."""
        ticket = self.ticket
        assert ticket.ending is not None, "it has ended"
        error = {"error": ticket.error} if ticket.error else {}
        ratio = round(ticket.tokens_per_forward, 4)
        reason = ticket.ending.reason
        return {"finish_reason": reason, "step": ticket.steps, "nfe": ticket.nfe, "tokens_per_forward": ratio, **error}
