"""Typed answers by LangChain and instructor, as their users ask for them. Prints one line of JSON: each way, and its answer.

The server's address and the model are the arguments. It runs in the environment of these clients, without dlstep.
"""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import instructor  # pyright: ignore[reportMissingImports]
from langchain_core.tools import tool  # pyright: ignore[reportMissingImports]
from langchain_openai import ChatOpenAI  # pyright: ignore[reportMissingImports]
from openai import OpenAI
from pydantic import BaseModel

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
CALLS = 8  # of each way, at a time


class Total(BaseModel):
    """The number of things that somebody has."""

    shells: int
    kind: Literal["shells", "eggs"]
    sure: bool


@tool
def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


def langchain(url: str, model: str) -> dict[str, Callable[[], Any]]:
    """Ways to ask through LangChain."""
    chat = ChatOpenAI(base_url=f"{url}/v1", model=model, max_tokens=60, max_retries=0)
    ways: dict[str, Callable[[], Any]] = {}
    for method in ("json_schema", "function_calling"):
        typed = chat.with_structured_output(Total, method=method)
        ways[f"langchain {method}"] = lambda typed=typed: typed.invoke(STORY).model_dump()
        ways[f"langchain {method} streamed"] = lambda typed=typed: list(typed.stream(STORY))[-1].model_dump()
    bound = chat.bind_tools([add], tool_choice="any")
    ways["langchain tools"] = lambda: [call["args"] for call in bound.invoke(STORY).tool_calls]
    return ways


def instructed(url: str, model: str) -> dict[str, Callable[[], Any]]:
    """Ways to ask through instructor, which must not need to ask twice."""
    ways: dict[str, Callable[[], Any]] = {}
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
        typed = instructor.from_openai(OpenAI(base_url=f"{url}/v1", max_retries=0), mode=mode)
        ways[f"instructor {mode.value}"] = lambda typed=typed: typed.chat.completions.create(
            model=model,
            response_model=Total,
            max_tokens=60,
            max_retries=0,
            messages=[{"role": "user", "content": STORY}],
        ).model_dump()
    return ways


def main(url: str, model: str) -> None:
    """Print the answers of every way, each asked several times at once."""
    ways = langchain(url, model) | instructed(url, model)
    with ThreadPoolExecutor(4 * CALLS) as threads:
        found = {name: [threads.submit(way) for _ in range(CALLS)] for name, way in ways.items()}
    print(json.dumps({name: [each.result() for each in several] for name, several in found.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
