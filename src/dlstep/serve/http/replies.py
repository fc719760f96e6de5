"""Responses and chunks in OpenAI's format, with their fields in the order of openai's types."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from ..router.pending_requests import Head, PendingRequest
from ..shapes import ReadOfPrompt, ReadSlot, ReadsReply, ReadUsage
from .choices import ChoiceReader, Piece, TokenLog
from .tool_calls import Part

COMPACT = (",", ":")
Json = dict[str, Any]


def usage_of(pending_requests: Sequence[PendingRequest], copies: int) -> Json:
    """Return the token counts. Like OpenAI, count a prompt with several answers once."""
    prompts = pending_requests[::copies]
    prompt_tokens = sum(len(pending.submit.prompt) for pending in prompts)
    emitted = sum(len(pending.tokens) for pending in pending_requests)
    return {
        "completion_tokens": emitted,
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + emitted,
        "prompt_tokens_details": {"cached_tokens": sum(pending.cached for pending in prompts)},
    }


def reply_body(head: Head, choices: Sequence[ChoiceReader], echoes: Sequence[str], usage: Json) -> Json:
    """Return a whole response."""
    if head.kind == "read":
        return dict(_reads_body(head, choices, usage))
    return {
        "id": head.id,
        "choices": [_whole(head, choice, echoes[choice.index]) for choice in choices],
        "created": head.created,
        "model": head.model,
        "object": "text_completion" if head.kind == "completion" else "chat.completion",
        "usage": usage,
        **({} if head.kind == "completion" else _prompt_ids(head, choices[0])),
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
        "logprobs": _logs(head, piece.logs),
        **answer,
        "dlstep": piece.dlstep,
        **_token_ids(head, piece),
        **(_prompt_ids(head, choice) if completes else {}),
    }


def _token_ids(head: Head, piece: Piece) -> Json:
    return {"token_ids": [log.token for log in piece.logs]} if head.token_ids else {}


def _prompt_ids(head: Head, choice: ChoiceReader) -> Json:
    return {"prompt_token_ids": list(choice.pending.submit.prompt)} if head.token_ids else {}


def text_of(piece: Piece) -> str:
    """Return the text of a piece, without reasoning and calls."""
    return "".join([part.text for part in piece.parts if part.kind == "text"])


def _message(head: Head, delta: Json) -> Json:
    """Return the message of the only delta of an answer."""
    calls = delta.pop("tool_calls", [])
    message = {"content": None if calls and not head.call else "", "role": "assistant"}
    if calls:
        message["tool_calls"] = [
            {"id": call["id"], "function": dict(sorted(call["function"].items())), "type": "function"} for call in calls
        ]
    return message | delta


def _logs(head: Head, logs: Sequence[TokenLog]) -> Json | None:
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


def chunk(head: Head, choices: list[Json], **more: Any) -> bytes:
    """Return one chunk of a stream as an event."""
    name = "text_completion" if head.kind == "completion" else "chat.completion.chunk"
    body = {"id": head.id, "object": name, "created": head.created, "model": head.model, "choices": choices, **more}
    return event(body)


def event(body: Mapping[str, object]) -> bytes:
    """Return an object (a chunk, or an error that clients raise) as a server-sent event."""
    return b"data: " + json.dumps(body, separators=COMPACT).encode() + b"\n\n"


def first_chunk(head: Head, choice: ChoiceReader, echo: str, **more: Any) -> bytes | None:
    """Return the chunk before any answer text: the role in a chat, or the echoed prompt, and the prompt's ids."""
    ids, common = _prompt_ids(head, choice), {"index": choice.index, "logprobs": None, "finish_reason": None}
    if head.kind == "chat":
        return chunk(head, [{**common, "delta": {"role": "assistant", "content": ""}}], **ids, **more)
    return chunk(head, [{**common, "text": echo, **ids}], **more) if echo or ids else None


def piece_chunk(head: Head, choice: ChoiceReader, piece: Piece, **more: Any) -> bytes:
    """Return a piece of an answer as a chunk. Without new text, `choices` is empty."""
    if piece.dlstep:
        more["dlstep"] = piece.dlstep
    if not piece.parts and not piece.ended and not piece.logs:
        return chunk(head, [], **more)
    logs = _logs(head, piece.logs)
    if logs and head.kind == "chat":
        logs["refusal"] = None
    answer = {"text": text_of(piece)} if head.kind == "completion" else {"delta": _delta(choice, piece.parts)}
    ends = {"logprobs": logs, "finish_reason": choice.finish if piece.ended else None}
    return chunk(head, [{"index": choice.index, **answer, **ends, **_token_ids(head, piece)}], **more)


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


DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
