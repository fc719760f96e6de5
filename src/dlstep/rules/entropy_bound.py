"""The entropy bound: unmask positions while the sum of their entropies, without the largest, is within it.

Source: Ben-Hamu et al., "Accelerated Sampling from Masked Diffusion Models via Entropy Bounded
Unmasking" (EB-Sampler), 2025, arXiv 2505.24857. The authors tune the bound per task; the default is
that of `diffusion_gemma`. The bound is in nats (some copies use bits), and the largest entropy is
that of the unmasked positions (one copy includes other requests, unless the order is entropy).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, final

from ..core import BlockPass, Choice, NonNegativeFloat, SampleSpec
from ._shares import SAMPLE_SPECS, scores_by

_BOTH = SampleSpec(statistics=frozenset({"entropy", "margin"}))


def accepted(entropies: tuple[float, ...], bound: float) -> list[int]:
    """Return the indices, ascending, whose predecessors' entropies sum to at most `bound`.

    Predecessors have a lower entropy or, in ties, a lower index. The first is always accepted.
    """
    ordered = sorted(entropies)
    count = bisect_right(list(accumulate(ordered)), bound) + 1
    if count >= len(ordered):
        return list(range(len(ordered)))
    largest = ordered[count - 1]
    kept = [index for index, entropy in enumerate(entropies) if entropy <= largest]
    if len(kept) == count:
        return kept
    # In a tie with the last accepted entropy, drop the highest indices.
    gone = [index for index in kept if entropies[index] == largest][count - len(kept) :]
    return [index for index in kept if index not in gone]


@final
@dataclass(frozen=True, slots=True)
class EntropyBound(Choice):
    """A rule that unmasks the longest run in `order` within `entropy_bound`."""

    SWEEP = ("entropy_bound", (0.03, 0.1, 0.3, 1.0, 3.0))

    entropy_bound: NonNegativeFloat = 0.1
    """Limit in nats for the sum of the entropies unmasked at once, without the largest."""
    order: Literal["entropy", "confidence", "margin"] = "entropy"
    """Which positions come first: small entropies, probable tokens or large margins."""

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the indices within the bound, at least the first in the order."""
        entropies, bound = block_pass.samples.entropies, self.entropy_bound
        if self.order == "entropy":
            return accepted(entropies, bound)
        scores = self.scores(block_pass)
        total = largest = 0.0
        chosen: list[int] = []
        for index in sorted(range(len(scores)), key=scores.__getitem__, reverse=True):
            total, largest = total + entropies[index], max(largest, entropies[index])
            if chosen and total - largest > bound:
                break
            chosen.append(index)
        return sorted(chosen)

    def scores(self, block_pass: BlockPass) -> Sequence[float]:
        """Return the scores of `order`: negated entropies, probabilities or margins."""
        return scores_by(self.order, block_pass.samples)

    @property
    def sample_spec(self) -> SampleSpec:
        """Entropies, and margins if they define the order."""
        return _BOTH if self.order == "margin" else SAMPLE_SPECS["entropy"]


RULE = EntropyBound
