"""Responses in OpenAI's format: whole ones as openai types, chunks as dictionaries."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from openai.types import Completion, CompletionChoice, CompletionUsage
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionTokenLogprob,
)
from openai.types.chat.chat_completion import Choice as ChatChoice, ChoiceLogprobs
from openai.types.chat.chat_completion_token_logprob import TopLogprob
from openai.types.completion_choice import Logprobs
from openai.types.completion_usage import PromptTokensDetails

from ..router.pending_requests import Head, PendingRequest
from ..shapes import ReadOfPrompt, ReadSlot, ReadsReply, ReadUsage
from .call_formats import Part
from .choices import ChoiceReader, Piece, TokenLog

COMPACT = (",", ":")


def usage_of(pending_requests: Sequence[PendingRequest], copies: int) -> CompletionUsage:
    """Return the token counts. Like OpenAI, count a prompt with several answers once."""
    prompts = pending_requests[::copies]
    prompt_tokens = sum(len(pending.submit.prompt) for pending in prompts)
    emitted = sum(len(pending.tokens) for pending in pending_requests)
    cached = PromptTokensDetails(cached_tokens=sum(pending.cached for pending in prompts))
    return CompletionUsage(
        prompt_tokens=prompt_tokens,
        completion_tokens=emitted,
        total_tokens=prompt_tokens + emitted,
        prompt_tokens_details=cached,
    )


def reply(head: Head, choices: Sequence[ChoiceReader], echoes: Sequence[str], usage: CompletionUsage) -> str:
    """Return the JSON of a whole response."""
    return json.dumps(reply_body(head, choices, echoes, usage), separators=COMPACT)


def reply_body(head: Head, choices: Sequence[ChoiceReader], echoes: Sequence[str], usage: CompletionUsage) -> dict[str, Any]:
    """Return a whole response as a dictionary."""
    if head.kind == "read":
        return dict(_reads_body(head, choices, usage))
    is_completion = head.kind == "completion"
    completion = (Completion if is_completion else ChatCompletion).model_construct(
        id=head.id,
        object="text_completion" if is_completion else "chat.completion",
        created=head.created,
        model=head.model,
        choices=[_whole(head, choice, echoes[choice.index] if echoes else "") for choice in choices],
        usage=usage,
        **({} if is_completion else _prompt_ids(head, choices[0])),
    )
    return completion.model_dump(mode="json", exclude_unset=True)


def _reads_body(head: Head, choices: Sequence[ChoiceReader], usage: CompletionUsage) -> ReadsReply:
    """Return the response to a read."""
    data: list[ReadOfPrompt] = []
    for choice in choices:
        template, left = choice.pending.submit.template, iter(choice.pending.probabilities)
        assert template is not None, "every request of a read has a template"
        slots = [ReadSlot(labels=[*labels], probabilities=[*islice(left, len(labels))]) for labels in template.labels]
        data.append(ReadOfPrompt(index=choice.index, slots=slots))
    cached = sum(choice.pending.cached for choice in choices)
    counts = ReadUsage(prompt_tokens=usage.prompt_tokens, cached_tokens=cached)
    return ReadsReply(id=head.id, object="reads", created=head.created, model=head.model, data=data, usage=counts)


def _whole(head: Head, choice: ChoiceReader, echo: str) -> CompletionChoice | ChatChoice:
    """Return a choice of a whole response."""
    piece = choice.whole()
    common = {
        "index": choice.index,
        "logprobs": _logs(head, piece.logs),
        "finish_reason": choice.finish,
        "dlstep": piece.dlstep,
        **_token_ids(head, piece),
    }
    if head.kind == "completion":
        return CompletionChoice.model_construct(text=echo + text_of(piece), **common, **_prompt_ids(head, choice))
    return ChatChoice.model_construct(message=_message(head, _delta(choice, piece.parts)), **common)


def _token_ids(head: Head, piece: Piece) -> dict[str, Any]:
    return {"token_ids": [log.token for log in piece.logs]} if head.token_ids else {}


def _prompt_ids(head: Head, choice: ChoiceReader) -> dict[str, Any]:
    return {"prompt_token_ids": choice.pending.submit.prompt} if head.token_ids else {}


def text_of(piece: Piece) -> str:
    """Return the text of a piece, without reasoning and calls."""
    return "".join([part.text for part in piece.parts if part.kind == "text"])


def _message(head: Head, delta: dict[str, Any]) -> ChatCompletionMessage:
    """Return the message of the only delta of an answer."""
    calls = delta.pop("tool_calls", [])
    if calls:
        whole = [{name: call[name] for name in ("id", "type", "function")} for call in calls]
        delta["tool_calls"] = [ChatCompletionMessageFunctionToolCall.model_validate(call) for call in whole]
    return ChatCompletionMessage.model_construct(
        **{"role": "assistant", "content": None if calls and not head.call else "", **delta}
    )


def _logs(head: Head, logs: Sequence[TokenLog]) -> Logprobs | ChoiceLogprobs | None:
    """Return the log probabilities of tokens; None if the request did not ask for them."""
    if not head.logprobs:
        return None
    if head.kind == "chat":
        best = [[TopLogprob(**_named(each)) for each in log.best] for log in logs]
        entries = zip(logs, best, strict=True)
        return ChoiceLogprobs(content=[ChatCompletionTokenLogprob(**_named(log), top_logprobs=top) for log, top in entries])
    return Logprobs(
        tokens=[log.name for log in logs],
        token_logprobs=[log.logprob for log in logs],
        # Like vLLM, include the settled token. Of several tokens with one name, the most probable one counts.
        top_logprobs=[{each.name: each.logprob for each in (log, *reversed(log.best), log)} for log in logs],
        text_offset=[log.offset for log in logs],
    )


def _named(log: TokenLog) -> dict[str, Any]:
    return {"token": log.name, "bytes": list(log.encoded), "logprob": log.logprob}


def chunk(head: Head, choices: list[dict[str, Any]], **more: Any) -> bytes:
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
    text = {"text": text_of(piece)} if head.kind == "completion" else {"delta": _delta(choice, piece.parts)}
    finish = choice.finish if piece.ended else None
    return chunk(
        head,
        [
            {
                "index": choice.index,
                **text,
                "logprobs": logs and logs.model_dump(mode="json"),
                "finish_reason": finish,
                **_token_ids(head, piece),
            }
        ],
        **more,
    )


def _delta(choice: ChoiceReader, parts: Iterable[Part]) -> dict[str, Any]:
    """Return what parts of an answer add to a message."""
    delta: dict[str, Any] = {}
    for part in parts:
        if part.kind == "call":
            delta.setdefault("tool_calls", []).append(_call_delta(choice, part))
        else:
            name = "content" if part.kind == "text" else "reasoning_content"
            delta[name] = delta.get(name, "") + part.text
    return delta


def _call_delta(choice: ChoiceReader, part: Part) -> dict[str, Any]:
    """Return what a part adds to a call, whose first part has its id and name."""
    if not part.name:
        return {"index": part.number, "function": {"arguments": part.text}}
    function = {"name": part.name, "arguments": part.text}
    return {"index": part.number, "id": choice.call_id(part.number), "type": "function", "function": function}


DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
