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
from typing import Annotated, Literal, final

from annotated_types import Interval

from ..core import PLAIN, BlockPass, Choice, Probability, Refused, SampleSpec, check_ranges

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
    position_penalty: Annotated[float, Interval(ge=0.0, lt=float("inf"))] = 0.0
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
        probabilities, accept = block_pass.samples.probabilities, self.accept_threshold
        if self.falling:
            block = block_pass.block
            accept *= 1.0 - self.falling * (1.0 - len(block.masked) / len(block.sampled(block_pass.limit)))
        elif self.order != "confidence":
            return self._certain(self._penalized(block_pass), must=block_pass.must)
        if self.inclusive:
            chosen = [index for index, probability in enumerate(probabilities) if probability >= accept]
        else:
            chosen = [index for index, probability in enumerate(probabilities) if probability > accept]
        return chosen or ([probabilities.index(max(probabilities))] if block_pass.must else [])

    def scores(self, block_pass: BlockPass) -> Sequence[float]:
        """Return probabilities, or negated entropies with order="entropy"."""
        if self.order == "confidence":
            return block_pass.samples.probabilities
        return [-entropy for entropy in self._penalized(block_pass)]

    @property
    def sample_spec(self) -> SampleSpec:
        """Entropies with order="entropy", otherwise nothing."""
        return PLAIN if self.order == "confidence" else _ENTROPY

    def _penalized(self, block_pass: BlockPass) -> Sequence[float]:
        """Return the entropies, plus `position_penalty` times the distance from the first mask."""
        entropies, penalty, masked = block_pass.samples.entropies, self.position_penalty, block_pass.block.masked
        if not penalty:
            return entropies
        return [entropy + penalty * (at - masked[0]) for entropy, at in zip(entropies, masked, strict=True)]

    def _certain(self, entropies: Sequence[float], *, must: bool) -> list[int]:
        """Return the indices with low enough entropy; if none and `must`, the first with the least."""
        most = self.entropy_threshold
        if self.inclusive:
            chosen = [index for index, entropy in enumerate(entropies) if entropy <= most]
        else:
            chosen = [index for index, entropy in enumerate(entropies) if entropy < most]
        return chosen or ([entropies.index(min(entropies))] if must else [])


RULE = Threshold
