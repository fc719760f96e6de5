"""Autoregressive decoding: each forward pass samples the next token.

For networks with causal rows, such as those that also decode in blocks: it is what other strategies
of the same network are compared with, in speed and in answers.
"""

from dataclasses import dataclass
from typing import final

from ._verified import Verified


@final
@dataclass(frozen=True, slots=True)
class Autoregressive(Verified):
    """One token per pass, predicted by the row before it, which attends causally."""

    @property
    def draft_rows(self) -> int:
        """1: nothing is drafted."""
        return 1

    @property
    def autoregressive(self) -> "Autoregressive":
        """The strategy itself."""
        return self


STRATEGY = Autoregressive
