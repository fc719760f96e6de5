"""Make tokens that the prompt or the answer already contains less likely.

A positive logit is divided by the penalty, a negative one multiplied by it. The token at a position
itself does not count, so that strategies can sample an unmasked position again.
Source: CTRL, arXiv 1909.05858, as in transformers and vLLM.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, final

from annotated_types import Interval

from ..core import Context, Processor

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class RepetitionPenalty(Processor):
    """A penalty on tokens that occur elsewhere in the request."""

    penalty: Annotated[float, Interval(gt=0.0, le=100.0)] = 1.2
    """Factor of the penalty: above 1 discourages repetition, below 1 encourages it."""

    def process(self, logits: "Tensor", context: Context) -> "Tensor":
        """Return the logits, with those of repeated tokens reduced."""
        tokens = logits.new_tensor(context.so_far.tokens).long()
        counts = tokens.bincount(minlength=logits.shape[1]).repeat(len(logits), 1)
        own = tokens[[position for position in context.positions if position < len(tokens)]]
        counts[range(len(own)), own] -= 1
        reduced = (logits / self.penalty).where(logits > 0, logits * self.penalty)
        return reduced.where(counts > 0, logits)


PROCESSOR = RepetitionPenalty
