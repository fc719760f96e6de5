"""Discrete diffusion forcing (D2F): the prompt is seen in full, the answer is decoded in pipelined blocks behind it.

The grid is the paper's: block 0 is the whole prompt, blocks of `block_size` are counted from its end. A prompt is therefore
fed at once, never in pieces. Source: Wang et al., "Diffusion LLMs Can Do Faster-Than-AR Inference via Discrete Diffusion
Forcing", 2025, arXiv 2508.09192.
"""

from dataclasses import dataclass
from typing import final

from ..core import Grid, Request
from ._blocks import Blockwise


@final
@dataclass(frozen=True, slots=True)
class D2F(Blockwise):
    """Blocks behind the prompt, decided by a rule; see `Blocks` and `Blockwise` for the fields."""

    def grid(self, request: Request) -> Grid:
        """The prompt is one group, then groups of `block_size`."""
        return Grid(len(request.prompt), self.block_size)


STRATEGY = D2F
