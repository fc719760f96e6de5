"""Blocks that end where a phrase does: the first forward of each looks for a delimiter, such as a newline.

A block of fixed size cuts sentences and lines where it happens to end. Here a block begins with a forward over the canvas,
and ends with the most probable delimiter of the positions that are next, if that is probable enough; else it has the canvas'
own `block_size`.

Source: Lu et al., "AdaBlock-dLLM: Semantic-Aware Diffusion LLM Inference via Adaptive Block Size", 2025, arXiv 2509.26432.
Different here: of equally probable delimiters the first counts, and the blocks behind it are left to any rule.
"""

from dataclasses import dataclass, replace
from math import floor
from typing import Annotated, final

from annotated_types import Interval

from ..core import Block, Choice, Probability, Rows, Rule, Sequence, Spec, Wants, check_ranges, draw
from .sliding import check_inner
from .threshold import Threshold


@final
@dataclass(frozen=True, slots=True)
class AdaBlock(Rule):
    """Chooses where each block ends, and leaves the block to another rule, the first forward included.

    Of equally probable delimiters the first counts.
    """

    SWEEP = ("accept_threshold", (0.5, 0.7, 0.8, 0.9, 0.95))

    delimiters: tuple[int, ...] = (198,)
    """Ids that may end a block; the default is a newline in LLaDA's vocabulary. None: all blocks have the canvas' size."""
    delimiter_threshold: Probability = 0.3
    """A delimiter of at least this probability ends the block."""
    look_ahead: Annotated[float, Interval(gt=0.0, le=1.0)] = 0.25
    """Share of the answer's length that is searched for a delimiter: the positions behind what is decided."""
    inner: Choice = Threshold(inclusive=True)
    """The rule that decides positions of the block."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_inner(self, self.inner)
        if min(self.delimiters, default=0) < 0:
            raise ValueError(f"AdaBlock.delimiters must be ids of tokens, at least 0, got {min(self.delimiters)}")

    @property
    def grids(self) -> bool:
        """A grid's blocks have the size that the model was trained on."""
        return False

    @property
    def wants(self) -> Wants:
        """The statistics of the inner rule, and the most probable id: the sampled one may be another."""
        wants = self.inner.wants
        return wants if wants.best else replace(wants, best=1)

    def unfit(self, spec: Spec) -> str:
        """Models that the other rule cannot decode."""
        return self.inner.unfit(spec)

    def opens(self, size: int, answer: int) -> int:
        """A block of the canvas' size, or all that is searched for a delimiter."""
        return max(size, floor(self.look_ahead * answer))

    def ends(self, sequence: Sequence, block: Block, rows: Rows, size: int) -> int:
        """Behind the most probable delimiter, or where a block of the canvas' size ends."""
        answer = sequence.goal.limit - len(sequence.goal.request.prompt)
        searched = min(floor(self.look_ahead * answer), len(rows.tokens))
        ids, chances, best = rows.best_ids, rows.best_probabilities, self.wants.best
        found = [row for row in range(searched) if ids[row * best] in self.delimiters]
        end = max(found, key=lambda row: (chances[row * best], -row), default=None)
        if end is None or chances[end * best] < self.delimiter_threshold:
            return min(block.start + size, block.end)
        return block.start + end + 1

    def wanted(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """Everything in the first forward, then what the other rule looks at."""
        return self.inner.wanted(block, limit, number) if number else block.undecided

    def measure(self, sequence: Sequence, block: Block) -> int:
        """The undecided positions; before the first forward, which may give positions back, pinned ones, too."""
        return len(block.undecided if sequence.ledger.steps > block.opened else block.tokens)

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block as the other rule leaves it; behind the first forward the block has its end already."""
        if draw(sequence, block) == 0:
            asked = self.inner.wanted(block, sequence.goal.limit, 0)
            if asked != block.undecided:
                rows, begin = rows.at([begin + position - block.start for position in asked], self.wants.best), 0
        return self.inner.decided(sequence, block, rows, begin, must, spec)


RULE = AdaBlock
