"""Fast-dLLM's threshold: every position whose token is probable enough is taken; with d3LLM's and Streaming-dLLM's forms.

Source: Wu et al., "Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and Parallel Decoding", 2025,
arXiv 2505.22618. The test by entropy is that of d3LLM, 2026, arXiv 2601.07568, whose code takes the least uncertain of all
open positions besides; here each block that must get further does. The falling threshold is that of Streaming-dLLM, 2026,
arXiv 2601.17917, whose released code counts the suffix behind the block, too (`docs/published_code.md`).
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Literal, final

from annotated_types import Interval

from ..core import PLAIN, Block, Choice, Probability, Rows, Sequence, Wants, check_ranges

_ENTROPY = Wants(statistics=frozenset({"entropy"}))


@final
@dataclass(frozen=True, slots=True)
class Threshold(Choice):
    """Takes every position that is sure enough, or else the surest one where one must be taken.

    By confidence, a position is sure enough when the probability of its token is above a threshold; by entropy, when the
    entropy of its distribution is below another one.
    """

    accept_threshold: Probability = 0.9
    """A position is decided when the probability of its token is above this."""
    inclusive: bool = False
    """A probability or an entropy that equals the threshold is enough."""
    order: Literal["confidence", "entropy"] = "confidence"
    """Which number of a position is compared: the probability of its token, or the entropy of its distribution."""
    entropy_threshold: Annotated[float, Interval(ge=0.0, lt=float("inf"))] = 0.5
    """A position is decided when its entropy, in nats, is below this; read with order="entropy"."""
    falling: Probability = 0.0
    """The share of `accept_threshold` that it loses while a block fills: at 0.3 it is 0.7 of it for the last positions."""

    def __post_init__(self) -> None:
        check_ranges(self)
        unread = {"accept_threshold", "falling"} if self.order == "entropy" else {"entropy_threshold"}
        for field in fields(self):
            given = attrgetter(field.name)(self)
            if field.name in unread and given != field.default:
                other = "confidence" if self.order == "entropy" else "entropy"
                raise ValueError(
                    f"Threshold.{field.name}={given} has no effect with order={self.order!r}: give order={other!r}"
                )

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The rows above the threshold."""
        end, accept = begin + len(block.undecided), self.accept_threshold
        if self.falling:
            accept *= 1.0 - self.falling * (1.0 - len(block.undecided) / len(block.sampled(sequence.goal.limit)))
        elif self.order != "confidence":
            return self._certain(rows.entropies[begin:end], begin, must)
        of_block = rows.probabilities[begin:end]
        chosen = self._above(of_block, accept, begin)
        return chosen or ([begin + of_block.index(max(of_block))] if must else [])

    def accepted(self, rows: Rows) -> list[int] | None:
        """Return the rows above the threshold, if the threshold is the same for all blocks."""
        if self.falling or self.order != "confidence":
            return None
        return self._above(rows.probabilities, self.accept_threshold, 0)

    def _above(self, probabilities: tuple[float, ...], accept: float, begin: int) -> list[int]:
        """Return the rows whose probability is high enough; `begin` is the row of the first probability."""
        if self.inclusive:
            return [row for row, probability in enumerate(probabilities, begin) if probability >= accept]
        return [row for row, probability in enumerate(probabilities, begin) if probability > accept]

    def scores(self, sequence: Sequence, block: Block, rows: Rows, begin: int) -> Items[float]:
        """Return probabilities, or with order="entropy" entropies with their sign changed."""
        if self.order == "confidence":
            return Choice.scores(self, sequence, block, rows, begin)
        return [-entropy for entropy in rows.entropies[begin : begin + len(block.undecided)]]

    @property
    def wants(self) -> Wants:
        """Entropies where they are compared."""
        return PLAIN if self.order == "confidence" else _ENTROPY

    def _certain(self, entropies: tuple[float, ...], begin: int, must: bool) -> list[int]:
        """The rows whose entropy is below the threshold, or else the first of least entropy."""
        most = self.entropy_threshold
        if self.inclusive:
            chosen = [row for row, entropy in enumerate(entropies, begin) if entropy <= most]
        else:
            chosen = [row for row, entropy in enumerate(entropies, begin) if entropy < most]
        return chosen or ([begin + entropies.index(min(entropies))] if must else [])


RULE = Threshold
