"""Fast-dLLM's threshold: unmask every position whose token is probable enough; with two variants.

Source: Wu et al., "Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and
Parallel Decoding", 2025, arXiv 2505.22618. The entropy test is that of d3LLM, 2026, arXiv
2601.07568, whose code also unmasks the least uncertain of all open positions; here each block that
must advance unmasks its own. The falling threshold is that of Streaming-dLLM, 2026, arXiv
2601.17917, whose code also counts the suffix after the block (`docs/published_code.md`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal, final

from annotated_types import Interval

from ..core import PLAIN, Block, Choice, Probability, SampleSpec, SequenceState, SpanSamples, check_ranges

_ENTROPY = SampleSpec(statistics=frozenset({"entropy"}))


@final
@dataclass(frozen=True, slots=True)
class Threshold(Choice):
    """A rule that unmasks all certain positions, or the best one if none is and the block must advance.

    With order="confidence", a position is certain if the probability of its token is above a
    threshold; with order="entropy", if the entropy of its distribution is below another one.
    """

    accept_threshold: Probability = 0.9
    """Unmask a position when the probability of its token is above this."""
    inclusive: bool = False
    """A probability or an entropy equal to the threshold is enough."""
    order: Literal["confidence", "entropy"] = "confidence"
    """The value to compare with the threshold: token probability, or distribution entropy."""
    entropy_threshold: Annotated[float, Interval(ge=0.0, lt=float("inf"))] = 0.5
    """Unmask a position when its entropy, in nats, is below this; only with order="entropy"."""
    falling: Probability = 0.0
    """How far the threshold falls as a block fills: 0.3 ends near 0.7 * `accept_threshold`."""

    def __post_init__(self) -> None:
        check_ranges(self)
        unread = {"accept_threshold", "falling"} if self.order == "entropy" else {"entropy_threshold"}
        for field in fields(self):
            option = getattr(self, field.name)
            if field.name in unread and option != field.default:
                other = "confidence" if self.order == "entropy" else "entropy"
                raise ValueError(
                    f"Threshold.{field.name}={option} has no effect with order={self.order!r}: give order={other!r}"
                )

    def chosen(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
        """Return the rows that are certain enough; if none is and `must`, the most certain one."""
        end, accept = begin + len(block.masked), self.accept_threshold
        if self.falling:
            accept *= 1.0 - self.falling * (1.0 - len(block.masked) / len(block.sampled(sequence.request.limit)))
        elif self.order != "confidence":
            return self._certain(rows.entropies[begin:end], begin, must)
        of_block = rows.probabilities[begin:end]
        if self.inclusive:
            chosen = [row for row, probability in enumerate(of_block, begin) if probability >= accept]
        else:
            chosen = [row for row, probability in enumerate(of_block, begin) if probability > accept]
        return chosen or ([begin + of_block.index(max(of_block))] if must else [])

    def scores(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int) -> Sequence[float]:
        """Return probabilities, or negated entropies with order="entropy"."""
        if self.order == "confidence":
            return Choice.scores(self, sequence, block, rows, begin)
        return [-entropy for entropy in rows.entropies[begin : begin + len(block.masked)]]

    @property
    def sample_spec(self) -> SampleSpec:
        """Entropies with order="entropy", otherwise nothing."""
        return PLAIN if self.order == "confidence" else _ENTROPY

    def _certain(self, entropies: tuple[float, ...], begin: int, must: bool) -> list[int]:
        """Return the rows with low enough entropy; if none and `must`, the first with the least."""
        most = self.entropy_threshold
        if self.inclusive:
            chosen = [row for row, entropy in enumerate(entropies, begin) if entropy <= most]
        else:
            chosen = [row for row, entropy in enumerate(entropies, begin) if entropy < most]
        return chosen or ([begin + entropies.index(min(entropies))] if must else [])


RULE = Threshold
