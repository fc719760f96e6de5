"""Fast-dLLM's threshold: unmask every position whose token is probable enough; with variants.

Source: Wu et al., "Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and
Parallel Decoding", 2025, arXiv 2505.22618. The entropy test is that of d3LLM, 2026, arXiv
2601.07568, whose code also unmasks the least uncertain of all open positions; here each block that
must advance unmasks its own. The falling threshold is that of Streaming-dLLM, 2026, arXiv
2601.17917, whose code also counts the suffix after the block (`docs/published_code.md`). The position
penalty is that of WeDLM, 2025, arXiv 2512.22737.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, final

from ..core import BlockPass, Choice, NonNegativeFloat, Probability, Refused, SampleSpec, check_ranges
from ._shares import SAMPLE_SPECS


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
    entropy_threshold: NonNegativeFloat = 0.5
    """Unmask a position when its entropy, in nats, is below this; only with order="entropy"."""
    position_penalty: NonNegativeFloat = 0.0
    """This times the distance from the block's first mask is added to an entropy; only with order="entropy"."""
    falling: Probability = 0.0
    """How far the threshold falls as a block fills: 0.3 ends near 0.7 * `accept_threshold`."""

    def __post_init__(self) -> None:
        check_ranges(self)
        unread = {"accept_threshold", "falling"} if self.order == "entropy" else {"entropy_threshold", "position_penalty"}
        for field in fields(self):
            option = getattr(self, field.name)
            if field.name in unread and option != field.default:
                other = "confidence" if self.order == "entropy" else "entropy"
                raise Refused(field.name, "conflict", f"{option} has no effect with order={self.order!r}: give order={other!r}")

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the indices that are certain enough; if none is and `must`, the most certain one."""
        scores = self.scores(block_pass)
        accept = self.accept_threshold if self.order == "confidence" else -self.entropy_threshold
        if self.falling:
            accept *= 1.0 - self.falling * (1.0 - len(block_pass.block.masked) / len(block_pass.free))
        if self.inclusive:
            chosen = [index for index, score in enumerate(scores) if score >= accept]
        else:
            chosen = [index for index, score in enumerate(scores) if score > accept]
        return chosen or ([scores.index(max(scores))] if block_pass.must else [])

    def scores(self, block_pass: BlockPass) -> Sequence[float]:
        """Return probabilities, or with order="entropy" negated entropies, each after its position's penalty."""
        if self.order == "confidence":
            return block_pass.samples.probabilities
        masked, penalty = block_pass.block.masked, self.position_penalty
        pairs = zip(block_pass.samples.entropies, masked, strict=True)
        return [-(entropy + penalty * (position - masked[0])) for entropy, position in pairs]

    @property
    def sample_spec(self) -> SampleSpec:
        """Entropies with order="entropy", otherwise nothing."""
        return SAMPLE_SPECS[self.order]


RULE = Threshold
