"""Fast-dLLM: a canvas under full attention, decoded block by block from left to right, with approximate caches.

The canvas is the prompt and the whole answer, masked where it is undecided; every position sees every other. A block begins
with a *refresh*, a forward over the canvas. Until it is full its next forwards feed the block alone and see the rest as the
refresh stored it (`dual`), feed the block and what follows it (`prefix`), or refresh again (`none`). Source: Wu et al.,
"Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and Parallel Decoding", 2025, arXiv 2505.22618.
"""

from dataclasses import dataclass
from typing import final

from ._canvas import Canvas


@final
@dataclass(frozen=True, slots=True)
class DualCache(Canvas):
    """A canvas that a rule decides block by block; see `Canvas` for the fields."""


STRATEGY = DualCache
