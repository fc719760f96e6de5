"""`/v1/responses`: translate its bodies to those of chats, and answers to responses and their events."""

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from pydantic import ValidationError

from ...core import Json, Refusal, Refused
from .errors import body_of, invalid
from .replies import ChoiceReader, Piece, Reply, TokenLog, event, logs_of
from .schema import LOGPROBS, ChatRequest, ResponsesRequest, Sampling
from .tool_calls import Part

ITEM = (
    "must be a message with a role and a content, a function_call with a call_id, or a function_call_output with a call_id "
    "and an output. Nothing is stored: instead of an item_reference, send the item (many clients do if store is false)"
)


def chat_of(body: ResponsesRequest) -> ChatRequest:
    """Return the body of the equivalent chat. Raises Refused that names the invalid field."""
    text, logprobs = body.text or {}, LOGPROBS in (body.include or ())
    if logprobs and body.tools and body.tool_choice != "none":
        raise Refused("include", "conflict", f"it cannot contain {LOGPROBS} with tools: leave one of them out")
    return chat_with(
        body,
        messages=_messages(body),
        max_completion_tokens=body.max_output_tokens,
        response_format=_nested(text.get("format")),
        tools=[_nested(tool) for tool in body.tools or ()],
        tool_choice=_nested(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=(body.reasoning or {}).get("effort"),
        verbosity=text.get("verbosity"),
        chat_template_kwargs=body.chat_template_kwargs,
        logprobs=logprobs,
        top_logprobs=body.top_logprobs,
        store=None,
    )


def chat_with(body: Sampling, **fields: Any) -> ChatRequest:
    """Return the chat with the fields that all bodies have, and these. Raises Refused that names the invalid field."""
    try:
        return ChatRequest.model_validate({name: getattr(body, name) for name in Sampling.model_fields} | fields)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False)) from error


def _messages(body: ResponsesRequest) -> list[Json]:
    """Return the messages of the chat. Calls belong to the assistant's message before them. Raises Refused."""
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
                raise Refused(f"input.{index}", "invalid_value", ITEM)
    return messages


def _nested(value: Any) -> Any:
    """Return a tool, a choice or a format as chats have it: with all fields but `type` in one object."""
    match value:
        case {"type": "allowed_tools", "tools": list(tools), **fields}:
            return {"type": "allowed_tools", "allowed_tools": {**fields, "tools": [*map(_nested, tools)]}}
        case {"type": str(kind), **fields} if fields:
            return {"type": kind, kind: fields}
        case _:
            return value


@dataclass(eq=False)
class ItemReply(Reply):
    """A reply made of items: texts and function calls, without reasoning. A whole reply is the last state of its stream."""

    NEWS: ClassVar[str]
    """The type of the events with `dlstep` objects."""

    def __post_init__(self) -> None:
        self._reply, self._writer = Json(), self._written()
        self._numbers, self._logs = count(), list[TokenLog]()  # of tokens whose text was not sent yet

    @abstractmethod
    def _written(self) -> Generator[bytes, Part | None]:
        """Yield the first events, then the events of each part that is sent to this generator; None ends the answer."""

    def _event(self, kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + event({**fields, "type": kind})

    def whole(self) -> Json:
        """Return the whole reply."""
        self.begin()
        self.piece(self.choices[0], self.choices[0].whole())
        self.end()
        return self._reply

    def begin(self) -> bytes:
        """Return what a stream begins with."""
        return next(self._writer)

    def piece(self, choice: ChoiceReader, piece: Piece) -> bytes:
        """Return a piece of an answer as a part of a stream."""
        self._logs += piece.logs
        sent = [self._writer.send(part) for part in piece.parts if part.kind != "reasoning"]
        if self.body.dlstep.stream != "settled":
            sent.append(self._event(self.NEWS, dlstep=piece.dlstep))
        return b"".join(sent)

    def end(self) -> bytes:
        """Return what a stream ends with."""
        return self._writer.send(None)


class ResponseReply(ItemReply):
    """The reply to a body of `/v1/responses`."""

    PREFIX, NEWS, chat_of = "resp_", "response.dlstep", staticmethod(chat_of)
    # A message may be several items, so errors leave out its number.
    NAMES: ClassVar = {
        r"messages(\.\d+)?": "input",
        r"response_format(\.json_schema)?": "text.format",
        r"max_(completion_)?tokens": "max_output_tokens",
        r"(tool_choice)\.(function|allowed_tools)|(tools\.\d+)\.function": r"\1\3",
        "reasoning_effort": "reasoning.effort",
        "verbosity": "text.verbosity",
    }

    def _event(self, kind: str, **fields: Any) -> bytes:
        return super()._event(kind, **fields, sequence_number=next(self._numbers))

    def _written(self) -> Generator[bytes, Part | None]:
        """Yield the events."""
        given = self.body.model_dump(exclude_none=True, exclude={"input", "store", "stream"})
        emit, choice, output = self._event, self.choices[0], list[Json]()
        self._reply = response = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True} | given | {
            "id": self.head.id, "object": "response", "created_at": self.head.created, "model": self.head.model,
            "status": "in_progress", "output": output,
        }  # fmt: skip
        sent = emit("response.created", response=response) + emit("response.in_progress", response=response)
        kind, name, place, item, text = "", "", Json(), Json(), Json()
        while True:
            part = yield sent
            sent, begins = b"", part is None or part.name or part.kind != kind
            if begins and output:
                self._new_logs(text)
                sent += emit(f"response.{name}.done", **place, **text)
                if text is not item:
                    sent += emit("response.content_part.done", **place, part=text)
                item["status"] = "incomplete" if part is None and choice.finish == "length" else "completed"
                sent += emit("response.output_item.done", **place, item=item)
            if part is None:
                break
            if begins:
                kind, place = part.kind, {"item_id": f"{response['id']}_{len(output)}", "output_index": len(output)}
                text = item = {"id": place["item_id"], "status": "in_progress"}
                output.append(item)
                if kind == "call":
                    name, call_id = "function_call_arguments", choice.call_id(part.number)
                    item |= {"type": "function_call", "call_id": call_id, "name": part.name, "arguments": ""}
                else:
                    name, text = "output_text", {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                    item |= {"type": "message", "role": "assistant", "content": []}
                sent += emit("response.output_item.added", **place, item=item)
                if text is not item:
                    item["content"], place["content_index"] = [text], 0
                    sent += emit("response.content_part.added", **place, part=text)
            text["arguments" if kind == "call" else "text"] += part.text
            sent += emit(f"response.{name}.delta", **place, delta=part.text, logprobs=self._new_logs(text))
        response |= self._ending()
        yield sent + emit(f"response.{'incomplete' if choice.finish == 'length' else 'completed'}", response=response)

    def _new_logs(self, text: Json) -> list[Json]:
        """Add the unsent log probabilities to a text, and return them."""
        new, self._logs = (logs_of(self.head, self._logs) or {"content": []})["content"], []
        text.get("logprobs", []).extend(new)  # calls have none
        return new

    def _ending(self) -> Json:
        choice, usage = self.choices[0], self.usage()
        summary, status = choice.summary(), "incomplete" if choice.finish == "length" else "completed"
        if summary["finish_reason"] == "abort":
            status = "cancelled"
        return {
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": choice.pending.cached, "cache_write_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            "dlstep": summary,
        }

    def failed(self, fault: Refusal) -> bytes:
        """Return the end of a stream that fails."""
        error = body_of(fault)["error"]
        return self._event("error", code=error["code"], message=error["message"], param=error["param"])
