"""Shares of a block that passes unmask: the highest scores, and even shares of fixed schedules; and remasking."""

from collections.abc import Callable, Sequence

from ..core import PLAIN, Block, BlockSamples, SampleSpec, SpanSamples, Spec

# By order, the statistics that its scores are computed from.
SAMPLE_SPECS = {
    "confidence": PLAIN,
    "margin": SampleSpec(statistics=frozenset({"margin"})),
    "entropy": SampleSpec(statistics=frozenset({"entropy"})),
}


def scores_by(order: str, samples: BlockSamples | SpanSamples) -> Sequence[float]:
    """Return the score of each position in an order of `SAMPLE_SPECS`: probabilities, margins or negated entropies."""
    if order == "entropy":
        return [-entropy for entropy in samples.entropies]
    return samples.margins if order == "margin" else samples.probabilities


def highest(scores: Sequence[float], count: int) -> list[int]:
    """Return the indices of the `count` largest scores, ascending; ties go to the lowest index."""
    if count == 1:
        return [scores.index(max(scores))]
    if count >= len(scores):
        return list(range(len(scores)))
    falling = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    return sorted(falling[:count])


def due(size: int, steps: int | None, forwards: int) -> int:
    """Return how many of `size` positions the first `forwards` of `steps` passes unmask.

    The remainder goes to the first passes; `steps` None means one position per pass.
    """
    share, over = divmod(size, steps or size)
    return min(size, share * forwards + min(over, forwards))


def share(size: int, steps: int | None, number: int) -> int:
    """Return how many of `size` positions pass `number` of `steps` unmasks; at least one."""
    even, over = divmod(size, steps or size)
    return max(even + (number < over), 1)


def length(size: int, steps: int | None) -> int:
    """Return the number of forward passes of a schedule of `steps` for `size` positions."""
    return min(steps or size, size)


def in_parts(size: int, part: int, bound: Callable[[int], int]) -> int:
    """Return an upper bound on the passes for `size` positions in parts of `part`; `bound` returns that of one part."""
    full, rest = divmod(size, part)
    return full * bound(part) + (bound(rest) if rest else 0)


def remasked(block: Block, positions: Sequence[int], spec: Spec) -> Block:
    """Return the block with `positions` remasked. The model must have a mask id."""
    assert spec.mask_id is not None
    return block.remask(positions, spec.mask_id) if positions else block
