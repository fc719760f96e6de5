"""`/v1/responses`: translate its bodies to those of chats, and answers to responses and their events."""

import json
import re
from collections.abc import Generator
from itertools import count
from typing import Any

from pydantic import ValidationError

from .answers import AnswerJob
from .errors import ApiError, invalid
from .replies import COMPACT, ChoiceReader, Json, Piece, event, usage_of
from .schema import ChatRequest, ResponsesRequest, Sampling
from .tool_calls import Part

ITEM = (
    "must be a message with a role and a content, a function_call with a call_id, or a function_call_output with a call_id "
    "and an output. Nothing is stored: instead of an item_reference, send the item (many clients do if store is false)"
)


def chat_of(body: ResponsesRequest) -> ChatRequest:
    """Return the body of the equivalent chat. Raises ApiError that names the invalid field."""
    chat = {name: getattr(body, name) for name in Sampling.model_fields} | {
        "messages": _messages(body),
        "max_completion_tokens": body.max_output_tokens,
        "response_format": _nested((body.text or {}).get("format")),
        "tools": [_nested(tool) for tool in body.tools or ()],
        "tool_choice": _nested(body.tool_choice),
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": (body.reasoning or {}).get("effort"),
        "store": None,
    }
    try:
        return ChatRequest.model_validate(chat)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False)) from error


def _messages(body: ResponsesRequest) -> list[Json]:
    """Return the messages of the chat. Calls belong to the assistant's message before them. Raises ApiError."""
    messages: list[Json] = [{"role": "system", "content": body.instructions}] if body.instructions else []
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    for index, item in enumerate(items):
        match item:
            case {"role": role, "content": content} if not item.keys() & {"tool_calls", "tool_call_id"}:
                messages.append({"role": role, "content": content})
            case {"type": "function_call_output", "call_id": call_id, "output": output}:
                messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
            case {"type": "function_call", "call_id": call_id}:
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant"})
                messages[-1].setdefault("tool_calls", []).append({"id": call_id, "function": item})
            case {"type": "reasoning"}:
                pass
            case _:
                raise ApiError(400, f"input.{index}: {ITEM}", param=f"input.{index}")
    return messages


def _nested(value: Any) -> Any:
    """Return a tool, a choice or a format as chats have it: with all fields but `type` in one object."""
    match value:
        case {"type": str(kind), **fields} if fields:
            return {"type": kind, kind: fields}
        case _:
            return value


def renamed(text: str) -> str:
    """Return a chat's error text in terms of `/v1/responses`, without message numbers: a message may be several items."""
    return re.sub(r"messages(\.\d+)?", "input", text.replace("response_format", "text.format"))


class ResponseJob(AnswerJob):
    """The answer to a body of `/v1/responses`. A whole response is the one in the last event of its stream."""

    body: ResponsesRequest

    def _begin(self) -> bytes:
        given = self.body.model_dump(exclude_none=True, exclude={"input", "store", "stream"})
        self._response: Json = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True} | given | {
            "id": self.head.id, "object": "response", "created_at": self.head.created, "model": self.head.model,
            "status": "in_progress", "output": [],
        }  # fmt: skip
        self._numbers, self._writer = count(), self._written()
        return next(self._writer)

    def _event(self, kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + event({**fields, "type": kind, "sequence_number": next(self._numbers)})

    def _written(self) -> Generator[bytes, Part | None]:
        """Yield the first events, then the events of each part that is sent to this generator; None ends the answer."""
        emit, response, output = self._event, self._response, self._response["output"]
        sent = emit("response.created", response=response) + emit("response.in_progress", response=response)
        kind, name, place, item, text = "", "", Json(), Json(), Json()
        while True:
            part = yield sent
            sent, begins = b"", part is None or part.name or part.kind != kind
            if begins and output:
                sent += emit(f"response.{name}.done", **place, **text)
                if text is not item:
                    sent += emit("response.content_part.done", **place, part=text)
                item["status"] = "completed"
                sent += emit("response.output_item.done", **place, item=item)
            if part is None:
                yield sent + emit(f"response.{response['status']}", response=response)
                return
            if begins:
                kind, place = part.kind, {"item_id": f"{response['id']}_{len(output)}", "output_index": len(output)}
                text = item = {"id": place["item_id"], "status": "in_progress"}
                output.append(item)
                if kind == "call":
                    name, call_id = "function_call_arguments", self.choices[0].call_id(part.number)
                    item |= {"type": "function_call", "call_id": call_id, "name": part.name, "arguments": ""}
                else:
                    name, text = "output_text", {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                    item |= {"type": "message", "role": "assistant", "content": []}
                sent += emit("response.output_item.added", **place, item=item)
                if text is not item:
                    item["content"], place["content_index"] = [text], 0
                    sent += emit("response.content_part.added", **place, part=text)
            text["arguments" if kind == "call" else "text"] += part.text
            sent += emit(f"response.{name}.delta", **place, delta=part.text, logprobs=[])

    def _piece(self, choice: ChoiceReader, piece: Piece) -> bytes:
        sent = [self._writer.send(part) for part in piece.parts if part.kind != "reasoning"]
        if self.body.dlstep.stream != "settled":
            sent.append(self._event("response.dlstep", dlstep=piece.dlstep))
        return b"".join(sent)

    def _end(self) -> bytes:
        if self._failed:
            return b""
        choice, usage = self.choices[0], usage_of(self.pending_requests, 1)
        cut = choice.finish == "length"
        self._response |= {
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": choice.pending.cached, "cache_write_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            "dlstep": choice.summary(),
        }
        return self._writer.send(None)

    def _reply(self) -> str:
        self._begin()
        self._piece(self.choices[0], self.choices[0].whole())
        self._end()
        return json.dumps(self._response, separators=COMPACT)
