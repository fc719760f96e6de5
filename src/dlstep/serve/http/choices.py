"""A choice: the text of one answer, in pieces for a stream or as a whole."""

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

# The engine's finish reasons -> OpenAI's. The original one is in `dlstep.finish_reason`.
FINISH = {"stop": "stop", "repetition": "stop", "length": "length", "nfe_limit": "length", "abort": "length"}
LEAST = 1e-30  # smaller probabilities are raised to this, because JSON has no -inf


@dataclass(frozen=True, slots=True)
class TokenLog:
    """The log probability of a settled token. `offset` is the position of `text` in the answer."""

    text: str
    logprob: float
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The new part of a choice: text, token probabilities, `dlstep` object, whether it ended."""

    text: str
    logs: tuple[TokenLog, ...]
    dlstep: dict[str, object]
    ended: bool


class Choice:
    """A reader of one ticket. A slow reader gets only the newest draft, but every recorded step."""

    def __init__(self, index: int, ticket: Ticket, head: Head, texts: Texts, spec: Spec) -> None:
        self.index, self.ticket = index, ticket
        self._head, self._texts, self._spec = head, texts, spec
        self._frames = 0  # sent frames
        self._teller = Teller(index, len(ticket.submit.prompt), spec.pieces)
        self._stream: TextStream | None = None
        self._read = 0  # tokens passed to the text stream
        self._logged = 0  # tokens whose probabilities were sent
        self._offset = 0  # characters of these tokens
        self._seq = 0
        self._told_nfe = 0
        self.ended = False  # whether the end was sent

    @property
    def text(self) -> str:
        """The text of the whole answer, once it has ended."""
        return cut(decode(self._texts.tokenizer, self.ticket.tokens), self.ticket.submit.params.stop)

    @property
    def finish(self) -> str:
        """The finish reason in OpenAI's terms."""
        assert self.ticket.ending is not None, "it has ended"
        return FINISH[self.ticket.ending.reason]

    def piece(self) -> Piece | None:
        """Return what is new since the last call, or None if there is nothing to send."""
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
        """Return the new text that the first `settled` tokens determine."""
        if self._stream is None:
            self._stream = TextStream(self._texts.tokenizer, self.ticket.submit.params.stop)
        new, self._read = self.ticket.tokens[self._read : settled], settled
        return self._stream.close(self.ticket.tokens) if self.ended else self._stream.push(new)

    def _step(self) -> Piece | None:
        """Return the next frame of an answer with recorded steps; None if there is none yet."""
        ticket, number = self.ticket, self._frames
        if number == len(ticket.frames):
            return None
        frame, self._frames = ticket.frames[number], number + 1
        self.ended = frame.ending is not None
        told = told_frame(self._teller, ticket, number, self._head, self._spec)
        return Piece(self._text(frame.settled), self.logs(frame.settled), told, self.ended)

    def logs(self, settled: int | None = None) -> tuple[TokenLog, ...]:
        """Return the unsent token probabilities, up to `settled` tokens; empty if not requested."""
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
        """Return the `dlstep` object of a chunk."""
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
        """Return the finish reason and the cost of the answer."""
        ticket = self.ticket
        assert ticket.ending is not None, "it has ended"
        error = {"error": ticket.error} if ticket.error else {}
        ratio = round(ticket.tokens_per_forward, 4)
        reason = ticket.ending.reason
        return {"finish_reason": reason, "step": ticket.steps, "nfe": ticket.nfe, "tokens_per_forward": ratio, **error}


def read_choices(tickets: Items[Ticket], head: Head, facts: Facts) -> list[Choice]:
    """Return one choice per ticket of a request."""
    spec = facts.card.config.spec
    return [Choice(index, ticket, head, facts.texts, spec) for index, ticket in enumerate(tickets)]


def told_frame(teller: Teller, ticket: Ticket, number: int, head: Head, spec: Spec) -> dict[str, Any]:
    """Return a frame of a ticket as JSON; the first frame also contains the answer's head."""
    told = teller.told(ticket.frames[number], round(ticket.times[number], 6))
    return told if number else {**told, "head": answer_head(ticket, head, spec)}


def answer_head(ticket: Ticket, head: Head, spec: Spec) -> dict[str, Any]:
    """Return the head of an answer with recorded steps."""
    assert ticket.opening is not None, "its steps are told"
    return head_of(ticket.opening, spec, request=head.id, kind=head.kind, model=head.model, forked_from=head.origin)
