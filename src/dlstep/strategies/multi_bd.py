"""Multi-block diffusion: several unfinished blocks in flight, on the absolute block grid.

Blocks are counted from position 0, prompt included. Attention is bidirectional inside a block and
causal between blocks, as in SDAR and LLaDA2. `buffer_size=1` is single-block diffusion.
"""

from dataclasses import dataclass
from typing import final

from ._blocks import Blockwise


@final
@dataclass(frozen=True, slots=True)
class MultiBD(Blockwise):
    """Blocks on the model's grid, decoded by a rule; see `Blocks` and `Blockwise` for fields."""


STRATEGY = MultiBD
