"""Messages of the official client, in every form in which a program may keep them, sent back as history.

Prints one line of JSON: for each way to get a message and each form of it, the answer to the turn that follows. The server's
address and the model are the arguments. It runs in the environment of a version of the client, without dlstep.
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import openai
from openai import OpenAI
from pydantic import BaseModel

QUESTION: Any = {"role": "user", "content": "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"}
MORE: Any = {"role": "user", "content": "Max finds 4 more. How many shells does Max have?"}
TOKENS = 60


class Total(BaseModel):
    """The number of things that somebody has."""

    shells: int
    sure: bool


def ways(client: OpenAI, model: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield ways to get a message: its text, an object or a call; whole, parsed or streamed."""
    chats: Any = client.chat.completions if hasattr(client.chat.completions, "parse") else client.beta.chat.completions
    tool: Any = openai.pydantic_function_tool(Total, name="total")
    schema = {"type": "json_schema", "json_schema": {"name": "total", "schema": Total.model_json_schema()}}
    facts: dict[str, dict[str, Any]] = {
        "text": {},
        "object": {"response_format": Total},
        "call": {"tools": [tool], "tool_choice": "required"},
        "named call": {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "total"}}},
    }
    for kind, more in facts.items():
        body: dict[str, Any] = {"model": model, "messages": [QUESTION], "max_tokens": TOKENS, **more}
        plain = body | ({"response_format": schema} if "response_format" in more else {})
        yield f"{kind}, created", lambda plain=plain: client.chat.completions.create(**plain).choices[0].message
        yield f"{kind}, parsed", lambda body=body: chats.parse(**body).choices[0].message
        yield f"{kind}, streamed", lambda body=body: streamed(chats, body)


def streamed(chats: Any, body: dict[str, Any]) -> Any:
    """Return the last message of the client's own stream."""
    with chats.stream(**body) as stream:
        return stream.get_final_completion().choices[0].message


def forms(message: Any) -> dict[str, Any]:
    """Return a message in all forms in which it may be kept."""
    dumped: dict[str, Any] = message.model_dump(warnings=False)
    return {
        "as it is": message,
        "model_dump": dumped,
        "model_dump without nulls": message.model_dump(exclude_none=True, warnings=False),
        "JSON": json.loads(message.model_dump_json(warnings=False)),
        "with what other servers add": {
            **dumped,
            "reasoning": None,
            "annotations": [],
            "audio": None,
            "provider": {"name": "x"},
        },
    }


def answers(client: OpenAI, model: str) -> dict[str, dict[str, str]]:
    """Return the answers to the turn after each form of each message."""
    found: dict[str, dict[str, str]] = {}
    for way, get in ways(client, model):
        for form, message in forms(get()).items():
            calls: Any = message.get("tool_calls") if isinstance(message, dict) else message.tool_calls
            ids = [call["id"] if isinstance(call, dict) else call.id for call in calls or ()]
            results = [{"role": "tool", "tool_call_id": id_, "content": "92"} for id_ in ids]
            turns: Any = [QUESTION, message, *results, MORE]
            answer = client.chat.completions.create(model=model, messages=turns, max_tokens=16)
            found.setdefault(way, {})[form] = answer.choices[0].message.content or ""
    return found


def main(url: str, model: str) -> None:
    """Print the answers."""
    print(json.dumps({"version": openai.__version__, "answers": answers(OpenAI(base_url=f"{url}/v1", max_retries=0), model)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
