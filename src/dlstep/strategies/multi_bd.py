"""Multi-block diffusion: several unfinished blocks in flight, on the model's block grid.

Blocks are counted from position 0, prompt included, or from the prompt's end. Attention is bidirectional inside a block
and causal between blocks, as in SDAR and LLaDA2. `buffer_size=1` is single-block diffusion.
"""

from dataclasses import dataclass
from typing import Literal, final

from ..core import Grid, Request
from ._blocks import Blockwise


@final
@dataclass(frozen=True, slots=True)
class MultiBD(Blockwise):
    """Blocks on the model's grid, decoded by a rule; see `Blocks` and `Blockwise` for more fields."""

    grid_origin: Literal["start", "prompt_end"] = "start"
    """Where counting of blocks begins: `start` is position 0; with `prompt_end`, a block begins where the answer does, and
    the first block of the prompt may be shorter (bd3lm)."""

    def grid(self, request: Request) -> Grid:
        """Return groups of `block_size`, one of which begins at `grid_origin`."""
        from_end = self.grid_origin == "prompt_end"
        return Grid(request.start % self.block_size if from_end else 0, self.block_size)


STRATEGY = MultiBD
