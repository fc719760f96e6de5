"""Discrete diffusion forcing (D2F): feed the prompt in full, then decode pipelined blocks.

The grid is the paper's: group 0 is the whole prompt, groups of `block_size` follow. A prompt is
therefore fed in one pass. Source: Wang et al., "Diffusion LLMs Can Do Faster-Than-AR Inference via
Discrete Diffusion Forcing", 2025, arXiv 2508.09192.
"""

from dataclasses import dataclass
from typing import final

from ..core import Grid, Request
from ._blocks import Blockwise


@final
@dataclass(frozen=True, slots=True)
class D2F(Blockwise):
    """Blocks after the prompt, decoded by a rule; see `Blocks` and `Blockwise` for the fields."""

    def grid(self, request: Request) -> Grid:
        """Return the prompt as one group, then groups of `block_size`."""
        return Grid(request.start, self.block_size)


STRATEGY = D2F
