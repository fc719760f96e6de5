"""Linear self-speculation: the network drafts a block of tokens at once, then verifies them with causal rows.

For networks that were trained to decode both in blocks and autoregressively. A draft feeds the last
token and masks, which attend to one another; its keys and values are not kept. The next pass feeds
the drafted tokens causally. It settles those that autoregressive decoding samples, with the same
random numbers, and the token after them, so answers equal those of autoregressive decoding, token
for token, at any temperature. Source: the published code of NVIDIA's Nemotron-Labs-Diffusion.
"""

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt

from ..core import Spec
from ._verified import Verified
from .autoregressive import Autoregressive


@final
@dataclass(frozen=True, slots=True)
class SelfSpeculation(Verified):
    """Drafts of `block_size` - 1 tokens, each followed by a pass that verifies them."""

    SWEEP = ("block_size", (2, 3, 4, 6, 8, 16))

    block_size: Annotated[int, Gt(0)] = 32
    """Rows of a draft: the last token and masks; 1 is autoregressive decoding."""

    @property
    def draft_rows(self) -> int:
        """The size of a block."""
        return self.block_size

    @property
    def autoregressive(self) -> Autoregressive:
        """Autoregressive decoding, without options."""
        return Autoregressive()

    def incompatibility(self, spec: Spec) -> str | None:
        """Return why a model that has no mask token or a shifted head does not fit; None for other models."""
        if spec.head_shift:
            return "its head is shifted in all rows; the rows of masks must predict their own positions"
        return Verified.incompatibility(self, spec)


STRATEGY = SelfSpeculation
