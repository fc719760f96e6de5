"""What every Python client is asked: a story, a nested type and a function."""

import json
import sys
from typing import Literal

from pydantic import BaseModel

URL, MODEL = f"{sys.argv[1]}/v1", sys.argv[2]
STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
TOKENS = 100
CALLS: list[dict[str, int]] = []


class Things(BaseModel):
    """A number of things."""

    count: int
    kind: Literal["shells", "eggs"]


class Total(BaseModel):
    """The things that somebody has."""

    things: list[Things]
    most: Things
    sure: bool


def add(first: int, second: int) -> int:
    """Add two numbers.

    Args:
        first: A number.
        second: Another number.
    """
    CALLS.append({"first": first, "second": second})
    return first + second


def tell(**found: object) -> None:
    """Print what the client got."""
    print(json.dumps(found))
