"""Soft inputs: positions whose input is a blend of embeddings. Drivers compute the blend."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from .checks import check_ranges
from .values import value

MergeMode = Literal["dmax_topk", "iter_smooth_topk"]


@dataclass(frozen=True, slots=True)
class Merge:
    """How to compute a soft token's embedding from table E, probabilities q_k and residual r.

    The mode `dmax_topk` computes `s = sum q_k E[id_k] + r E[mask]`, scaled to the norm `sum q_k
    |E[id_k]| + r |E[mask]|` with `renormalize`. The mode `iter_smooth_topk` computes `E[fed] +
    weight * sum q_k E[id_k]`. Source: DMax, dInfer.
    """

    mode: MergeMode = "dmax_topk"
    """Which of the two formulas."""
    renormalize: bool = True
    """With `dmax_topk`: scale the blend."""
    weight: Annotated[float, Ge(0.0)] = 1.0
    """With `iter_smooth_topk`: factor of the blend."""

    def __post_init__(self) -> None:
        check_ranges(self)


@value
class SoftTokens:
    """Soft inputs of some positions. Each has equally many ids and probabilities."""

    positions: tuple[int, ...]
    """The positions, ascending."""
    ids: tuple[int, ...]
    """Token ids of each position in turn."""
    probabilities: tuple[float, ...]
    """The weight of each id."""
    merge: Merge
    """How to compute the embeddings."""

    def mark(self) -> int:
        """Return a hash of the blends (residuals follow from them), equal in every process."""
        at = self.positions
        # Positions are mostly consecutive: then the first and the last identify all.
        where = (at[0], at[-1]) if at and at[-1] - at[0] < len(at) else at
        merge = self.merge
        how = (merge.mode == "dmax_topk", merge.renormalize, merge.weight)
        return hash((where, self.ids, self.probabilities, how))

    @property
    def width(self) -> int:
        """The number of ids per position."""
        return len(self.ids) // len(self.positions) if self.positions else 0

    @property
    def residuals(self) -> tuple[float, ...]:
        """One minus the sum of each position's probabilities."""
        width, sums = self.width, self.probabilities
        if width > 1:
            sums = tuple([sum(sums[index : index + width]) for index in range(0, len(sums), width)])
        # Rounded probabilities may add up to a little more than 1.
        return tuple([1.0 - total if total < 1.0 else 0.0 for total in sums])
