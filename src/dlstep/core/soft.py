"""Soft inputs: a position fed as a blend of embeddings instead of one token's. The core carries them; drivers blend."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from .checks import check_ranges
from .values import value

MergeMode = Literal["dmax_topk", "iter_smooth_topk"]


@dataclass(frozen=True, slots=True)
class Merge:
    """How a soft token becomes an embedding, E being the embedding table, q its probabilities and r its residual.

    `dmax_topk`: s = sum q_k E[id_k] + r E[mask], and with `renormalize` scaled to the norm sum q_k |E[id_k]| + r |E[mask]|.
    `iter_smooth_topk`: E[token fed] + `weight` * sum q_k E[id_k]. Source: DMax (2026) and the token merging of dInfer.
    """

    mode: MergeMode = "dmax_topk"
    renormalize: bool = True
    weight: Annotated[float, Ge(0.0)] = 1.0

    def __post_init__(self) -> None:
        check_ranges(self)


@value
class SoftTokens:
    """Soft inputs of some positions, ascending; `ids` and `probabilities` hold equally many entries for each of them."""

    positions: tuple[int, ...]
    ids: tuple[int, ...]
    probabilities: tuple[float, ...]
    merge: Merge

    def mark(self) -> int:
        """A number that differs where the blends differ; the same in every process. Residuals follow from probabilities."""
        at = self.positions
        # Most lie side by side: first and last then say them all.
        where = (at[0], at[-1]) if at and at[-1] - at[0] < len(at) else at
        merge = self.merge
        how = (merge.mode == "dmax_topk", merge.renormalize, merge.weight)
        return hash((where, self.ids, self.probabilities, how))

    @property
    def width(self) -> int:
        """Ids for each position."""
        return len(self.ids) // len(self.positions) if self.positions else 0

    @property
    def residuals(self) -> tuple[float, ...]:
        """The rest of each position's probability; drivers work it out for all rows at once."""
        width, sums = self.width, self.probabilities
        if width > 1:
            sums = tuple([sum(sums[index : index + width]) for index in range(0, len(sums), width)])
        # Rounded probabilities may add up to a little more than 1.
        return tuple([1.0 - total if total < 1.0 else 0.0 for total in sums])
