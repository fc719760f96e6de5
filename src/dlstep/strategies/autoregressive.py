"""Autoregressive decoding: each forward pass samples the next token.

For networks that can attend causally and also decode in parallel. It is the baseline for the speed
and the answers of their other strategies.
"""

from dataclasses import dataclass
from typing import final

from ._verified import Verified


@final
@dataclass(frozen=True, slots=True)
class Autoregressive(Verified):
    """One token per forward pass, predicted by the row before it with causal attention."""

    @property
    def draft_rows(self) -> int:
        """1, because nothing is drafted."""
        return 1

    @property
    def autoregressive(self) -> "Autoregressive":
        """This strategy."""
        return self


STRATEGY = Autoregressive
