"""`/v1/messages`: translate bodies of Anthropic's Messages API to those of chats, and answers to messages and their events."""

from collections.abc import Generator
from typing import ClassVar

from pydantic_core import from_json

from ...core import Json, Refusal, Refused
from .errors import body_of
from .responses import ItemReply, chat_with
from .schema import ChatRequest, MessagesRequest
from .tool_calls import Part

BLOCKS = (
    "must have a role, and a text or blocks as its content: of the type text, tool_use (with an id, a name and an input), or "
    "tool_result (with a tool_use_id)"
)
NAMES = {"any": "required", "custom": "function", "input_schema": "parameters"}  # names of these in chats


def chat_of(body: MessagesRequest) -> ChatRequest:
    """Return the body of the equivalent chat. Raises Refused that names the invalid field."""
    choice, continues = dict(body.tool_choice or {"type": None}), body.messages[-1].get("role") == "assistant"
    kind, serial = choice.pop("type", ""), choice.pop("disable_parallel_tool_use", None)
    return chat_with(
        body,
        messages=_messages(body),
        stop=body.stop_sequences,
        tools=[*map(_tool, body.tools or ())],
        tool_choice={"type": "function", "function": choice} if kind == "tool" else NAMES.get(kind, kind),
        parallel_tool_calls=not serial,
        enable_thinking=False if body.thinking else None,
        continue_final_message=continues,
        add_generation_prompt=not continues,
    )


def _tool(tool: Json) -> Json:
    kind = tool.get("type") or "custom"
    function = {NAMES.get(name, name): value for name, value in tool.items() if name not in ("type", "cache_control")}
    return {"type": NAMES.get(kind, kind), "function": function}


def _messages(body: MessagesRequest) -> list[Json]:
    """Return the messages of the chat, in which each tool result is a separate message. Raises Refused."""
    messages: list[Json] = [{"role": "system", "content": body.system}] if body.system else []
    for index, turn in enumerate(body.messages):
        content, texts, calls = turn.get("content"), list[Json](), list[Json]()
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks if isinstance(blocks, list) and blocks else [None]:
            match block:
                case {"type": "text"}:
                    texts.append(block)
                case {"type": "tool_use", "id": call_id, "name": name, "input": given}:
                    calls.append({"id": call_id, "function": {"name": name, "arguments": given}})
                case {"type": "tool_result", "tool_use_id": call_id}:
                    messages.append({"role": "tool", "tool_call_id": call_id, "content": block.get("content")})
                case {"type": "thinking" | "redacted_thinking"}:
                    pass
                case _:
                    raise Refused(f"messages.{index}", "invalid_value", BLOCKS)
        if texts or calls:
            messages.append({"role": turn.get("role"), "content": texts, "tool_calls": calls})
    return messages


class MessageReply(ItemReply):
    """The reply to a body of `/v1/messages`."""

    PREFIX, NEWS, chat_of = "msg_", "dlstep", staticmethod(chat_of)
    # The chat may have more messages than the body, so errors leave out their numbers.
    NAMES: ClassVar = {
        r"messages\.\d+": "messages",
        r"(tool_choice|tools\.\d+)\.function": r"\1",
        r"(tools\.\d+)\.parameters": r"\1.input_schema",
        "stop": "stop_sequences",
    }

    def _written(self) -> Generator[bytes, Part | None]:
        """Yield the events."""
        emit, choice, content = self._event, self.choices[0], list[Json]()
        self._reply = reply = {
            "id": self.head.id, "type": "message", "role": "assistant", "model": self.head.model, "content": content,
            "stop_reason": None, "stop_sequence": None, "usage": self._counts(),
        }  # fmt: skip
        sent, kind, arguments = emit("message_start", message=reply), "", ""
        while True:
            part = yield sent
            sent, begins = b"", part is None or part.name or part.kind != kind
            if begins and content:
                if kind == "call":
                    content[-1]["input"] = from_json(arguments, allow_partial=True)
                sent = emit("content_block_stop", index=len(content) - 1)
            if part is None:
                break
            if begins:
                kind, arguments, call = part.kind, "", {"id": choice.call_id(part.number), "name": part.name, "input": {}}
                content.append({"type": "tool_use", **call} if part.name else {"type": "text", "text": ""})
                sent += emit("content_block_start", index=len(content) - 1, content_block=content[-1])
            if kind == "call":
                arguments, delta = arguments + part.text, {"type": "input_json_delta", "partial_json": part.text}
            else:
                content[-1]["text"] += part.text
                delta = {"type": "text_delta", "text": part.text}
            sent += emit("content_block_delta", index=len(content) - 1, delta=delta)
        delta, more = self._ending(kind), {"usage": self._counts(), "dlstep": choice.summary()}
        reply |= delta | more
        yield sent + emit("message_delta", delta=delta, **more) + emit("message_stop")

    def _counts(self) -> Json:
        pending = self.choices[0].pending
        cached, tokens = pending.cached, len(pending.tokens)
        counts = {"input_tokens": len(pending.request.prompt) - cached, "output_tokens": tokens}
        return counts | {"cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}

    def _ending(self, kind: str) -> Json:
        """Return the stop reason of an answer whose last item has this kind."""
        choice = self.choices[0]
        stopped, reason = choice.stopped_by, "tool_use" if kind == "call" else "end_turn"
        if stopped:
            reason = "stop_sequence"
        if choice.finish == "length":  # clients continue an aborted answer by sending it back
            reason = "pause_turn" if choice.summary()["finish_reason"] == "abort" else "max_tokens"
        return {"stop_reason": reason, "stop_sequence": stopped}

    def failed(self, fault: Refusal) -> bytes:
        """Return the end of a stream that fails."""
        return self._event("error", error=body_of(fault)["error"])
