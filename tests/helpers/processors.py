"""Processors of logits as users write them: harmless, forcing, wild and broken ones."""

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from dlstep.core import Context, Processor

from .faulty import raised

FORCE = 1e6


@final
@dataclass(frozen=True, slots=True)
class Nothing(Processor):
    """Logits as they were, computed anew."""

    def process(self, logits: Tensor, context: Context) -> Tensor:
        assert logits.dtype == torch.float32, "processors get fp32 logits, whatever the dtype of the network"
        return logits + 0.0


@final
@dataclass(frozen=True, slots=True)
class Forced(Processor):
    """One token everywhere, wherever it is allowed; -1: the first of the prompt."""

    token: int = 5

    def process(self, logits: Tensor, context: Context) -> Tensor:
        logits[:, self.token if self.token >= 0 else context.so_far.tokens[0]] += FORCE
        return logits


@final
@dataclass(frozen=True, slots=True)
class Wild(Processor):
    """Logits that depend on everything a processor may read."""

    turn: int = 1

    def process(self, logits: Tensor, context: Context) -> Tensor:
        known = sum(position * token for position, token in enumerate(context.so_far.tokens))
        rows = [row.roll(self.turn + known + position) for row, position in zip(logits, context.positions, strict=True)]
        return -torch.stack(rows)


@final
@dataclass(frozen=True, slots=True)
class Broken(Processor):
    """A bug after `since` tokens of an answer."""

    kind: str = "exception"
    since: int = 0

    def process(self, logits: Tensor, context: Context) -> Any:
        if context.positions[0] < context.so_far.prompt_length + self.since:
            return logits
        match self.kind:
            case "nothing":
                return None
            case "rows":
                return logits[:1].repeat(len(logits) + 1, 1)
            case "integers":
                return logits.long()
            case "infinite":
                return logits.fill_(torch.inf)
            case _:
                return raised(self.kind)


PROCESSOR = Forced
