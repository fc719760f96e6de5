"""Answers as clients see them: the text of each in pieces or as a whole, and responses and chunks in OpenAI's format.

The fields of responses are in the order of openai's types.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from math import log
from typing import Any, ClassVar, NamedTuple

from ...core import Json, Refusal, Spec
from ...stream import window_texts
from ...text.detokenize import TextStream, cut, decode, special_ids
from ...text.words import Pieces
from ...views.frames import FrameEncoder, head_of
from ..messages import Facts
from ..router.pending_requests import Head, PendingRequest
from ..shapes import ReadOfPrompt, ReadSlot, ReadsReply, ReadUsage
from .errors import body_of
from .tool_calls import HERMES, AnswerReader, Part, begins_reasoning, format_in

COMPACT = (",", ":")
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
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


class Piece(NamedTuple):
    """The new content of a choice: parts of its text, token probabilities and `dlstep` object."""

    parts: tuple[Part, ...]
    logs: tuple[TokenLog, ...]
    dlstep: Json


class ChoiceReader:
    """A reader of one pending request.

    The joined pieces of an answer do not depend on how its tokens arrive: a response that is not
    streamed is a single piece. A slow reader gets only the newest draft, but every recorded step.
    """

    def __init__(self, index: int, pending: PendingRequest, head: Head, facts: Facts) -> None:
        self.index, self.pending = index, pending
        self._head, self._tokenizer, self._spec = head, facts.tokenizer, facts.first.config.spec
        self._frames = 0  # sent frames
        self._encoder = FrameEncoder(index, pending.request.start, self._spec.pieces)
        self._read = 0  # tokens passed to the text stream
        self._pieces = Pieces(self._spec.pieces)
        self._logged = 0  # tokens whose probabilities were sent
        self._offset = 0  # characters of these tokens
        self._seq = 0
        self._reported_nfe = 0
        self.ended = False  # whether the end was sent
        form = format_in(facts) if head.kind == "chat" else None
        # Marks that are special tokens are part of the text.
        self._spelled = frozenset[int]()
        if form is not None and facts.tokenizer is not None:
            self._spelled = special_ids(facts.tokenizer, form.tokens)
        self._stream = TextStream(facts.tokenizer, pending.request.params.stop, self._spelled)
        self._parts = AnswerReader(
            form or HERMES,
            head.functions,
            mode="text" if form is None else "reasoning" if begins_reasoning(facts, form, pending.request.prompt) else "start",
            forced=head.call,
            most=None if head.parallel else 1,
        )

    @property
    def text(self) -> str:
        """The text of the answer so far, with reasoning and calls as the model wrote them."""
        return cut(decode(self._tokenizer, self.pending.tokens, self._spelled), self.pending.request.params.stop)

    def call_id(self, number: int = 0) -> str:
        """Return the id of the function call with this number in the answer."""
        return f"call_{self._head.name}_{self.index}" + (f"_{number}" if number else "")

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        whole, stops = decode(self._tokenizer, self.pending.tokens, self._spelled), self.pending.request.params.stop
        return next((stop for stop in stops if whole.startswith(stop, len(cut(whole, stops)))), None)

    @property
    def finish(self) -> str:
        """The finish reason in OpenAI's terms."""
        assert self.pending.finish_info is not None, "it has ended"
        reason = FINISH[self.pending.finish_info.reason]
        if self.pending.finish_info.reason == "length" and self.pending.request.automaton is not None:
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
        piece = Piece(parts, self._logs(len(pending.tokens)), self._event())
        self._seq += 1
        return piece

    def whole(self) -> Piece:
        """Return the whole answer, once it has ended."""
        self.ended = True
        settled = len(self.pending.tokens)
        return Piece(self._new_parts(settled), self._logs(settled), self.summary())

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
        encoded |= self._step_map() if self.ended else {}
        return Piece(self._new_parts(frame.settled), self._logs(frame.settled), encoded)

    def _step_map(self) -> Json:
        """Return the step map of an answer that has ended; {} unless the request asks for it."""
        return {"step_map": self.pending.step_map} if self.pending.step_map else {}

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

    def _event(self) -> Json:
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

    def summary(self) -> Json:
        """Return the finish reason and the cost of the answer."""
        pending = self.pending
        assert pending.finish_info is not None, "it has ended"
        more = self._step_map() | ({"error": pending.error} if pending.error else {})
        ratio = round(pending.tokens_per_forward, 4)
        reason = pending.finish_info.reason
        return {"finish_reason": reason, "step": pending.steps, "nfe": pending.nfe, "tokens_per_forward": ratio, **more}


def read_choices(pending_requests: Sequence[PendingRequest], head: Head, facts: Facts) -> list[ChoiceReader]:
    """Return a reader of each pending request."""
    return [ChoiceReader(index, pending, head, facts) for index, pending in enumerate(pending_requests)]


def encoded_frame(encoder: FrameEncoder, pending: PendingRequest, number: int, head: Head, spec: Spec) -> Json:
    """Return a frame of a request as JSON; the first frame also contains the answer's head."""
    encoded = encoder.encode(pending.frames[number], round(pending.times[number], 6))
    return encoded if number else {**encoded, "head": answer_head(pending, head, spec)}


def answer_head(pending: PendingRequest, head: Head, spec: Spec) -> Json:
    """Return the head of an answer with recorded steps."""
    assert pending.opening is not None, "its steps are recorded"
    return head_of(pending.opening, spec, request=head.id, kind=head.kind, model=head.model, forked_from=head.origin)


@dataclass(eq=False)
class Reply:
    """The reply to a body, as a whole or as a stream, here in OpenAI's format of completions and chats.

    Other formats translate their bodies to those of chats.

    Args:
        head: The head of the reply.
        body: The request body.
        choices: A reader of each answer.
        echoes: The text that each answer starts with.
    """

    PREFIX: ClassVar[str] = ""
    """The prefix of reply ids; empty: that of completions and chats."""
    NAMES: ClassVar[Mapping[str, str]] = {}
    """Regexes of field names in the refusals of chats, and the replacements that name the fields of the body."""

    head: Head
    body: Any
    choices: Sequence[ChoiceReader]
    echoes: Sequence[str]

    @staticmethod
    def chat_of(body: Any) -> Any:
        """Return the body of the equivalent completion or chat. Raises Refused that names the invalid field."""
        return body

    def whole(self) -> Json:
        """Return the whole reply, whose `choices` may be an iterator."""
        head, choices, usage = self.head, self.choices, self.usage()
        if head.kind == "read":
            return dict(_reads_body(head, choices, usage))
        return {
            "id": head.id,
            # An iterator builds each choice when it is encoded: all log probabilities of 128 answers are a million objects, and
            # other threads wait while the encoder runs.
            "choices": (_whole(head, choice, self.echoes[choice.index]) for choice in choices),
            "created": head.created,
            "model": head.model,
            "object": "text_completion" if head.kind == "completion" else "chat.completion",
            "usage": usage,
            **({} if head.kind == "completion" else _prompt_ids(head, choices[0])),
        }

    def begin(self) -> bytes:
        """Return what a stream begins with: roles in a chat, or the echoed prompts, and ids of the prompts."""
        return b"".join(self._first(choice, echo) for choice, echo in zip(self.choices, self.echoes, strict=True))

    def _first(self, choice: ChoiceReader, echo: str) -> bytes:
        ids, common = _prompt_ids(self.head, choice), {"index": choice.index, "logprobs": None, "finish_reason": None}
        if self.head.kind == "chat":
            return self._chunk([{**common, "delta": {"role": "assistant", "content": ""}}], **ids)
        return self._chunk([{**common, "text": echo, **ids}]) if echo or ids else b""

    def piece(self, choice: ChoiceReader, piece: Piece) -> bytes:
        """Return a piece of an answer as a part of a stream, here as a chunk. Without new text, `choices` is empty."""
        head, more = self.head, {"dlstep": piece.dlstep} if piece.dlstep else {}
        if not (piece.parts or piece.logs or choice.ended):
            return self._chunk([], **more)
        logs = logs_of(head, piece.logs)
        if logs and head.kind == "chat":
            logs["refusal"] = None
        answer = {"text": text_of(piece)} if head.kind == "completion" else {"delta": _delta(choice, piece.parts)}
        ends = {"logprobs": logs, "finish_reason": choice.finish if choice.ended else None}
        return self._chunk([{"index": choice.index, **answer, **ends, **_token_ids(head, piece)}], **more)

    def end(self) -> bytes:
        """Return what a stream ends with."""
        options = self.body.stream_options
        return (self._chunk([], usage=self.usage()) if options and options.include_usage else b"") + DONE

    def failed(self, fault: Refusal) -> bytes:
        """Return the end of a stream that fails: an error that clients raise."""
        return event(body_of(fault)) + DONE

    def _chunk(self, choices: list[Json], **more: Any) -> bytes:
        """Return one chunk of a stream as an event, with the usage so far if the client asked for it."""
        head, options = self.head, self.body.stream_options
        name = "text_completion" if head.kind == "completion" else "chat.completion.chunk"
        if options and options.include_usage and options.continuous_usage_stats:
            more["usage"] = self.usage()
        return event({"id": head.id, "object": name, "created": head.created, "model": head.model, "choices": choices, **more})

    def usage(self) -> Json:
        """Return the token counts. Like OpenAI, count a prompt with several answers once; its suffix counts as part of it."""
        pending_requests = [choice.pending for choice in self.choices]
        prompts = pending_requests[:: self.body.n or 1]
        prompt_tokens = sum(len(pending.request.prompt + pending.request.params.suffix) for pending in prompts)
        emitted = sum(len(pending.tokens) for pending in pending_requests)
        return {
            "completion_tokens": emitted,
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + emitted,
            "prompt_tokens_details": {"cached_tokens": sum(pending.cached for pending in prompts)},
        }


def _reads_body(head: Head, choices: Sequence[ChoiceReader], usage: Json) -> ReadsReply:
    """Return the response to a read."""
    data: list[ReadOfPrompt] = []
    for choice in choices:
        template, left = choice.pending.submit.template, iter(choice.pending.probabilities)
        assert template is not None, "every request of a read has a template"
        slots = [ReadSlot(labels=[*labels], probabilities=[*islice(left, len(labels))]) for labels in template.labels]
        data.append(ReadOfPrompt(index=choice.index, slots=slots))
    cached = sum(choice.pending.cached for choice in choices)
    counts = ReadUsage(prompt_tokens=usage["prompt_tokens"], cached_tokens=cached)
    return ReadsReply(id=head.id, object="reads", created=head.created, model=head.model, data=data, usage=counts)


def _whole(head: Head, choice: ChoiceReader, echo: str) -> Json:
    """Return a choice of a whole response."""
    piece, completes = choice.whole(), head.kind == "completion"
    answer = {"text": echo + text_of(piece)} if completes else {"message": _message(head, _delta(choice, piece.parts))}
    return {
        "finish_reason": choice.finish,
        "index": choice.index,
        "logprobs": logs_of(head, piece.logs),
        **answer,
        "dlstep": piece.dlstep,
        **_token_ids(head, piece),
        **(_prompt_ids(head, choice) if completes else {}),
    }


def _token_ids(head: Head, piece: Piece) -> Json:
    return {"token_ids": [log.token for log in piece.logs]} if head.token_ids else {}


def _prompt_ids(head: Head, choice: ChoiceReader) -> Json:
    return {"prompt_token_ids": list(choice.pending.request.prompt)} if head.token_ids else {}


def text_of(piece: Piece) -> str:
    """Return the text of a piece, without reasoning and calls."""
    return "".join(part.text for part in piece.parts if part.kind == "text")


def _message(head: Head, delta: Json) -> Json:
    """Return the message of the only delta of an answer."""
    calls = delta.pop("tool_calls", [])
    message = {"content": None if calls and not head.call else "", "role": "assistant"}
    if calls:
        message["tool_calls"] = [
            {"id": call["id"], "function": dict(sorted(call["function"].items())), "type": "function"} for call in calls
        ]
    return message | delta


def logs_of(head: Head, logs: Sequence[TokenLog]) -> Json | None:
    """Return the log probabilities of tokens; None if the request did not ask for them."""
    if not head.logprobs:
        return None
    if head.kind == "chat":
        return {"content": [{**_named(log), "top_logprobs": [_named(each) for each in log.best]} for log in logs]}
    return {
        "text_offset": [log.offset for log in logs],
        "token_logprobs": [log.logprob for log in logs],
        "tokens": [log.name for log in logs],
        # Like vLLM, include the settled token. Of several tokens with one name, the most probable one counts.
        "top_logprobs": [{each.name: each.logprob for each in (log, *reversed(log.best), log)} for log in logs],
    }


def _named(log: TokenLog) -> Json:
    return {"token": log.name, "bytes": list(log.encoded), "logprob": log.logprob}


def event(body: Mapping[str, object]) -> bytes:
    """Return an object as a server-sent event."""
    return b"data: " + json.dumps(body, separators=COMPACT).encode() + b"\n\n"


def _delta(choice: ChoiceReader, parts: Iterable[Part]) -> Json:
    """Return what parts of an answer add to a message."""
    delta = Json()
    for part in parts:
        if part.kind == "call":
            delta.setdefault("tool_calls", []).append(_call_delta(choice, part))
        else:
            name = "content" if part.kind == "text" else "reasoning_content"
            delta[name] = delta.get(name, "") + part.text
    return delta


def _call_delta(choice: ChoiceReader, part: Part) -> Json:
    """Return what a part adds to a call, whose first part has its id and name."""
    if not part.name:
        return {"index": part.number, "function": {"arguments": part.text}}
    function = {"name": part.name, "arguments": part.text}
    return {"index": part.number, "id": choice.call_id(part.number), "type": "function", "function": function}
