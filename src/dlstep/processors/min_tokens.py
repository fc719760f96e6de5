"""Forbid end-of-sequence and stop tokens before an answer has a minimum number of tokens.

Under a constraint that allows nothing else at a position, such a token is still sampled.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from ..core import Context, NonNegativeInt, Processor
from ..core.lifecycle import stop_ids

if TYPE_CHECKING:
    from torch import Tensor

LOWEST = -1e30  # finite, so that a constraint can leave only such a token


@final
@dataclass(frozen=True, slots=True)
class MinTokens(Processor):
    """A minimum length of answers."""

    count: NonNegativeInt = 1
    """Number of tokens before which no token may end the answer."""

    def process(self, logits: "Tensor", context: Context) -> "Tensor":
        """Return the logits, with those of tokens that would end the answer too early at their minimum."""
        end = context.so_far.prompt_length + self.count
        early = [row for row, position in enumerate(context.positions) if position < end]
        for stop_id in stop_ids(context.params, context.spec):
            logits[early, stop_id] = LOWEST
        return logits


PROCESSOR = MinTokens
