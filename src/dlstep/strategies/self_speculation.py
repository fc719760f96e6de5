"""Linear self-speculation: the network drafts a block of tokens at once, then verifies them causally.

For networks that were trained to decode both in blocks and autoregressively. A draft feeds the last
token and masks, which attend to one another; its keys and values are discarded. The next pass feeds
the drafted tokens with causal attention and samples every position with the random numbers of
autoregressive decoding. It settles the drafted tokens that equal the samples, up to the first
mismatch, and the token sampled after them. Answers therefore equal those of autoregressive decoding,
token for token, at any temperature. Source: the code that NVIDIA published with
Nemotron-Labs-Diffusion.
"""

from dataclasses import dataclass
from typing import final

from ..core import PositiveInt
from ._verified import Verified
from .autoregressive import Autoregressive


@final
@dataclass(frozen=True, slots=True)
class SelfSpeculation(Verified):
    """Drafts of `block_size` - 1 tokens, each followed by a pass that verifies the tokens."""

    head_shift = 0
    SWEEP = ("block_size", (2, 3, 4, 6, 8, 16))

    block_size: PositiveInt = 32
    """Number of rows in a draft: the last token and masks; with 1, decoding is autoregressive."""

    @property
    def draft_rows(self) -> int:
        """The block size."""
        return self.block_size

    @property
    def autoregressive(self) -> Autoregressive:
        """Autoregressive decoding, without options."""
        return Autoregressive()


STRATEGY = SelfSpeculation
