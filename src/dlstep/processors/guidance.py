"""Classifier-free guidance: move logits away from those for a masked prompt.

Each pass runs twice, the first time with every prompt token masked. This needs a canvas that each pass
feeds in full, such as `dual_cache` with cache='none'. Source: LLaDA, arXiv 2502.09992, whose
published loop calls the option `cfg_scale`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, final

from annotated_types import Interval

from ..core import Context, Processor

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class Guidance(Processor):
    """Logits `u + (cfg_scale + 1) * (c - u)`, from `c` with the prompt and `u` with masks in its place."""

    cfg_scale: Annotated[float, Interval(ge=0.0, le=100.0)] = 1.0
    """Strength of the guidance; 0 changes nothing and runs no second pass."""

    @property
    def guided(self) -> bool:
        """Whether `cfg_scale` is above 0."""
        return self.cfg_scale > 0.0

    def process(self, logits: "Tensor", context: Context) -> "Tensor":
        """Return the guided logits."""
        if not self.guided:
            return logits
        return context.unguided + (self.cfg_scale + 1) * (logits - context.unguided)


PROCESSOR = Guidance
