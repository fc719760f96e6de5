"""A choice: the text of one answer, in pieces for a stream or as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import log
from typing import Any, NamedTuple

from ...core import Spec
from ...stream import window_texts
from ...text.detokenize import TextStream, cut, decode, special_ids
from ...text.words import Pieces
from ...views.frames import FrameEncoder, head_of
from ..facts import Facts, ModelTexts
from ..router.pending_requests import Head, PendingRequest
from .tool_calls import HERMES, AnswerReader, Part, begins_reasoning, format_in

# The engine's finish reasons -> OpenAI's. The original one is in `dlstep.finish_reason`.
FINISH = {
    "stop": "stop",
    "repetition": "stop",
    "length": "length",
    "nfe_limit": "length",
    "abort": "length",
    "rejected": "length",
}
LEAST = 1e-30  # smaller probabilities are raised to this, because JSON has no -inf


class TokenLog(NamedTuple):
    """The log probability of a token, by its name in responses. `offset` is the position of its text in the answer.

    `best` has the most probable tokens at the position of a settled one, if the request asks for them.
    """

    token: int
    name: str
    encoded: bytes
    logprob: float
    offset: int
    best: tuple["TokenLog", ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new in a choice: parts of its text, token probabilities, `dlstep` object, whether it ended."""

    parts: tuple[Part, ...]
    logs: tuple[TokenLog, ...]
    dlstep: dict[str, object]
    ended: bool


class ChoiceReader:
    """A reader of one pending request.

    The joined pieces of an answer do not depend on how its tokens arrive: a response that is not
    streamed is a single piece. A slow reader gets only the newest draft, but every recorded step.
    """

    def __init__(self, index: int, pending: PendingRequest, head: Head, texts: ModelTexts, spec: Spec) -> None:
        self.index, self.pending = index, pending
        self._head, self._texts, self._spec = head, texts, spec
        self._frames = 0  # sent frames
        self._encoder = FrameEncoder(index, len(pending.submit.prompt), spec.pieces)
        self._read = 0  # tokens passed to the text stream
        self._pieces = Pieces(spec.pieces)
        self._logged = 0  # tokens whose probabilities were sent
        self._offset = 0  # characters of these tokens
        self._seq = 0
        self._reported_nfe = 0
        self.ended = False  # whether the end was sent
        form = format_in(texts) if head.kind == "chat" else None
        # Marks that are special tokens are part of the text.
        self._spelled = frozenset[int]()
        if form is not None and texts.tokenizer is not None:
            self._spelled = special_ids(texts.tokenizer, form.tokens)
        self._stream = TextStream(texts.tokenizer, pending.submit.params.stop, self._spelled)
        self._parts = AnswerReader(
            form or HERMES,
            head.functions,
            mode="text" if form is None else "reasoning" if begins_reasoning(texts, form, pending.submit.prompt) else "start",
            forced=head.call,
            most=None if head.parallel else 1,
        )

    @property
    def text(self) -> str:
        """The text of the answer so far, with reasoning and calls as the model wrote them."""
        return cut(decode(self._texts.tokenizer, self.pending.tokens, self._spelled), self.pending.submit.params.stop)

    def call_id(self, number: int = 0) -> str:
        """Return the id of the function call with this number in the answer."""
        return f"call_{self._head.id.rpartition('-')[2]}_{self.index}" + (f"_{number}" if number else "")

    @property
    def finish(self) -> str:
        """The finish reason in OpenAI's terms."""
        assert self.pending.finish_info is not None, "it has ended"
        reason = FINISH[self.pending.finish_info.reason]
        if self.pending.finish_info.reason == "length" and self.pending.submit.constraint is not None:
            reason = "stop"  # an answer of the whole length is complete, too; clients take "length" for a cut one
        # Like OpenAI: an answer that had to call the named function just stops.
        return "tool_calls" if reason == "stop" and self._parts.calls and not self._head.call else reason

    def piece(self) -> Piece | None:
        """Return what is new since the last call, or None if there is nothing to send."""
        pending, drafts = self.pending, self.pending.submit.drafts
        if pending.frames:
            return self._step()
        if self.ended or (pending.nfe == self._reported_nfe and pending.finish_info is None):
            return None
        self.ended = pending.finish_info is not None
        parts = self._new_parts(len(pending.tokens))
        self._reported_nfe = pending.nfe
        if not (parts or self.ended or drafts):
            return None
        piece = Piece(parts, self._logs(len(pending.tokens)), self._event(), self.ended)
        self._seq += 1
        return piece

    def whole(self) -> Piece:
        """Return the whole answer, once it has ended."""
        self.ended = True
        settled = len(self.pending.tokens)
        return Piece(self._new_parts(settled), self._logs(settled), self.summary(), ended=True)

    def _new_parts(self, settled: int) -> tuple[Part, ...]:
        """Return the new parts that the first `settled` tokens determine."""
        new, self._read = self.pending.tokens[self._read : settled], settled
        text = self._stream.close(self.pending.tokens) if self.ended else self._stream.push(new)
        return tuple(self._parts.push(text, end=self.ended))

    def _step(self) -> Piece | None:
        """Return the next frame of an answer with recorded steps; None if there is none yet."""
        pending, number = self.pending, self._frames
        if number == len(pending.frames):
            return None
        frame, self._frames = pending.frames[number], number + 1
        self.ended = frame.finish_info is not None
        encoded = encoded_frame(self._encoder, pending, number, self._head, self._spec)
        return Piece(self._new_parts(frame.settled), self._logs(frame.settled), encoded, self.ended)

    def _logs(self, settled: int) -> tuple[TokenLog, ...]:
        """Return the unsent token probabilities, up to `settled` tokens; empty if not requested."""
        if not self.pending.submit.probabilities:
            return ()
        pending, tokens = self.pending, self.pending.tokens[self._logged : settled]
        texts = self._pieces.texts(tokens) if self.ended else self._pieces.certain(tokens)
        first, self._logged = self._logged, self._logged + len(texts)
        cells = zip(tokens, pending.probabilities[first : self._logged], strict=False)
        best = pending.best[first : self._logged] or repeat(())
        logs: list[TokenLog] = []
        for text, cell, others in zip(texts, cells, best, strict=False):
            entries: list[TokenLog] = []
            for token, chance in (cell, *others):
                piece = b"".join(self._spec.pieces[token : token + 1])
                encoded = (text or "").encode() if token == cell[0] else piece
                name = f"token_id:{token}" if self._head.by_id else encoded.decode(errors="replace")
                entries.append(TokenLog(token, name, encoded, log(max(chance, LEAST)), self._offset))
            logs.append(entries[0]._replace(best=tuple(entries[1:])))
            self._offset += len(text or "")
        return tuple(logs)

    def _event(self) -> dict[str, object]:
        """Return the `dlstep` object of a chunk."""
        pending = self.pending
        if not pending.submit.drafts:
            return {"index": self.index, **self.summary()} if self.ended else {}
        tokens, probabilities = pending.window
        texts = window_texts(tokens, self._spec.pieces)
        positions = range(len(pending.tokens), len(pending.tokens) + len(tokens))
        shown = [*zip(positions, tokens, probabilities, texts, strict=True)]
        counts = {
            "index": self.index,
            "seq": self._seq,
            "step": pending.steps,
            "nfe": pending.nfe,
            "settled": len(pending.tokens),
        }
        return {**counts, "cells": shown, **(self.summary() if self.ended else {})}

    def summary(self) -> dict[str, object]:
        """Return the finish reason and the cost of the answer."""
        pending = self.pending
        assert pending.finish_info is not None, "it has ended"
        error = {"error": pending.error.removeprefix(f"request {pending.id}: ")} if pending.error else {}
        ratio = round(pending.tokens_per_forward, 4)
        reason = pending.finish_info.reason
        return {"finish_reason": reason, "step": pending.steps, "nfe": pending.nfe, "tokens_per_forward": ratio, **error}


def read_choices(pending_requests: Sequence[PendingRequest], head: Head, facts: Facts) -> list[ChoiceReader]:
    """Return a reader of each pending request."""
    spec = facts.info.config.spec
    return [ChoiceReader(index, pending, head, facts.texts, spec) for index, pending in enumerate(pending_requests)]


def encoded_frame(encoder: FrameEncoder, pending: PendingRequest, number: int, head: Head, spec: Spec) -> dict[str, Any]:
    """Return a frame of a request as JSON; the first frame also contains the answer's head."""
    encoded = encoder.encode(pending.frames[number], round(pending.times[number], 6))
    return encoded if number else {**encoded, "head": answer_head(pending, head, spec)}


def answer_head(pending: PendingRequest, head: Head, spec: Spec) -> dict[str, Any]:
    """Return the head of an answer with recorded steps."""
    assert pending.opening is not None, "its steps are recorded"
    return head_of(pending.opening, spec, request=head.id, kind=head.kind, model=head.model, forked_from=head.origin)
