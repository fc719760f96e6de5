"""A choice is an answer in text: what of it is new since the last chunk, and what the whole of it is."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from math import log
from typing import Any

from ...core import Cell, Spec
from ...stream import window_texts
from ...text.detokenize import TextStream, cut, decode
from ...views.frames import Teller, head_of
from ..facts import Facts, Texts
from ..router.heads import Head
from ..router.tickets import Ticket

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
    """Reads one ticket. Whoever reads slowly gets more text at once and the newest draft only; steps are told one by one."""

    def __init__(self, index: int, ticket: Ticket, head: Head, texts: Texts, spec: Spec) -> None:
        self.index, self.ticket = index, ticket
        self._head, self._texts, self._spec = head, texts, spec
        self._frames = 0  # told ones
        self._teller = Teller(index, len(ticket.submit.prompt), spec.pieces)
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
        if ticket.frames:
            return self._step()
        if self.ended or (ticket.nfe == self._told_nfe and ticket.ending is None):
            return None
        self.ended = ticket.ending is not None
        text = self._text(len(ticket.tokens))
        self._told_nfe = ticket.nfe
        if not (text or self.ended or drafts):
            return None
        piece = Piece(text, self.logs(), self._event(), self.ended)
        self._seq += 1
        return piece

    def _text(self, settled: int) -> str:
        """The text that tokens up to `settled` make certain."""
        if self._stream is None:
            self._stream = TextStream(self._texts.tokenizer, self.ticket.submit.params.stop)
        new, self._read = self.ticket.tokens[self._read : settled], settled
        return self._stream.close(self.ticket.tokens) if self.ended else self._stream.push(new)

    def _step(self) -> Piece | None:
        """The next frame of an answer whose steps are told; None if there is none yet."""
        ticket, number = self.ticket, self._frames
        if number == len(ticket.frames):
            return None
        frame, self._frames = ticket.frames[number], number + 1
        self.ended = frame.ending is not None
        told = told_frame(self._teller, ticket, number, self._head, self._spec)
        return Piece(self._text(frame.settled), self.logs(frame.settled), told, self.ended)

    def logs(self, settled: int | None = None) -> tuple[TokenLog, ...]:
        """The tokens that were not told of yet, all or those up to `settled`, if probabilities were asked for."""
        if not self.ticket.submit.probabilities:
            return ()
        tokens, probabilities = self.ticket.tokens[self._logged : settled], self.ticket.probabilities[self._logged : settled]
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


def read_choices(tickets: Items[Ticket], head: Head, facts: Facts) -> list[Choice]:
    """Return the choices that read the tickets of one request."""
    spec = facts.card.config.spec
    return [Choice(index, ticket, head, facts.texts, spec) for index, ticket in enumerate(tickets)]


def told_frame(teller: Teller, ticket: Ticket, number: int, head: Head, spec: Spec) -> dict[str, Any]:
    """A frame of a ticket as JSON; the first one brings the answer's head."""
    told = teller.told(ticket.frames[number], round(ticket.times[number], 6))
    return told if number else {**told, "head": answer_head(ticket, head, spec)}


def answer_head(ticket: Ticket, head: Head, spec: Spec) -> dict[str, Any]:
    """The head of an answer whose steps are told."""
    assert ticket.opening is not None, "its steps are told"
    return head_of(ticket.opening, spec, request=head.id, kind=head.kind, model=head.model, forked_from=head.origin)
