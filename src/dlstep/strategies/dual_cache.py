"""Fast-dLLM: a canvas under full attention, decoded block by block, with approximate caches.

Every position of the canvas (prompt and answer) sees every other. A block begins with a *refresh*,
a pass over the canvas. Until the block is full, later passes feed only the block and use the KV of the
refresh elsewhere (`dual`), feed the block and all that follows (`prefix`), or refresh again (`none`).
Source: Wu et al., "Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and
Parallel Decoding", 2025, arXiv 2505.22618.
"""

from dataclasses import dataclass
from typing import final

from ._canvas import Canvas


@final
@dataclass(frozen=True, slots=True)
class DualCache(Canvas):
    """A canvas that a rule decodes block by block; see `Canvas` for the fields."""


STRATEGY = DualCache
