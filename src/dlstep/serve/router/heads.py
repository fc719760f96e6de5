"""The head of a response."""

import time
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import uuid4

from ..shapes import ForkOrigin

Kind = Literal["completion", "chat", "read"]
PREFIXES: dict[Kind, str] = {"completion": "cmpl", "chat": "chatcmpl", "read": "read"}


@dataclass(frozen=True, slots=True)
class Head:
    """The fields that all parts of one response share."""

    kind: Kind
    model: str
    logprobs: bool
    by_id: bool = False  # whether log probabilities name tokens by their ids
    token_ids: bool = False  # whether the response contains the ids of prompt and answer
    id: str = field(default="")
    created: int = field(default_factory=lambda: int(time.time()))
    origin: ForkOrigin | None = None  # of a fork: where it starts
    call: str | None = None  # the function that answers call; "" if each answer names it, None if they call none
    functions: tuple[str, ...] = ()  # those that the model may decide to call, in the format of its chat template
    parallel: bool = True  # whether an answer may have several calls

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", id_of(self.kind, uuid4().hex))

    def of_fork(self, origin: ForkOrigin) -> "Head":
        """Return the head of a fork of this response, whose answer has the same form, such as a function call."""
        return replace(self, id="", created=int(time.time()), origin=origin)


def id_of(kind: Kind, name: str) -> str:
    """Return the id of a response."""
    return f"{PREFIXES[kind]}-{name}"
