"""The entropy bound: positions are taken in an order as long as their entropies, all but the largest, sum to little enough.

Source: Ben-Hamu et al., "Accelerated Sampling from Masked Diffusion Models via Entropy Bounded Unmasking" (EB-Sampler), 2025,
arXiv 2505.24857. The authors tune the bound for each task; the default is that of `diffusion_gemma`. Some copies give it in
bits, and one takes the largest entropy from other requests of the batch unless the order is that of entropies; here it is
in nats, and of the positions that are taken.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Annotated, Literal, final

from annotated_types import Interval

from ..core import Block, Choice, Rows, Sequence, Wants
from ._ranking import accepted

_ENTROPY, _BOTH = Wants(statistics=frozenset({"entropy"})), Wants(statistics=frozenset({"entropy", "margin"}))


@final
@dataclass(frozen=True, slots=True)
class EntropyBound(Choice):
    """Takes the longest run of positions, in `order`, whose entropies less the largest sum to at most `entropy_bound`."""

    SWEEP = ("entropy_bound", (0.03, 0.1, 0.3, 1.0, 3.0))

    entropy_bound: Annotated[float, Interval(ge=0.0, lt=float("inf"))] = 0.1
    """The most that the entropies of positions taken at once sum to, all but the largest, in nats."""
    order: Literal["entropy", "confidence", "margin"] = "entropy"
    """Which positions come first: small entropies, probable tokens or large margins."""

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The rows within the bound; the first of the order always is."""
        end = begin + len(block.undecided)
        entropies, bound = rows.entropies[begin:end], self.entropy_bound
        if self.order == "entropy":
            indices = accepted(entropies, bound)
            return [begin + index for index in indices] if begin else indices
        scores = self.scores(sequence, block, rows, begin)
        total = largest = 0.0
        chosen: list[int] = []
        for index in sorted(range(len(scores)), key=scores.__getitem__, reverse=True):
            total, largest = total + entropies[index], max(largest, entropies[index])
            if chosen and total - largest > bound:
                break
            chosen.append(begin + index)
        return sorted(chosen)

    def scores(self, sequence: Sequence, block: Block, rows: Rows, begin: int) -> Items[float]:
        """Return the numbers of `order`: entropies with their sign changed, probabilities or margins."""
        end = begin + len(block.undecided)
        if self.order == "entropy":
            return [-entropy for entropy in rows.entropies[begin:end]]
        return (rows.probabilities if self.order == "confidence" else rows.margins)[begin:end]

    @property
    def wants(self) -> Wants:
        """Entropies, and margins where they are ordered by."""
        return _BOTH if self.order == "margin" else _ENTROPY


RULE = EntropyBound
