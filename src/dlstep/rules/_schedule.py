"""Parts that fixed schedules share: the sizes of even shares, and masks."""

from collections.abc import Sequence

from ..core import Block, Spec


def due(size: int, steps: int | None, forwards: int) -> int:
    """How many of `size` positions the first `forwards` of `steps` forwards take; what is left over goes to the first ones.

    None: one position for each forward. No forward takes less than one position while some are left.
    """
    share, over = divmod(size, steps or size)
    return min(size, share * forwards + min(over, forwards))


def share(size: int, steps: int | None, number: int) -> int:
    """How many of `size` positions forward `number` of `steps` takes, by the same shares; at least one."""
    even, over = divmod(size, steps or size)
    return max(even + (number < over), 1)


def length(size: int, steps: int | None) -> int:
    """How many forwards a schedule of `steps` takes for `size` positions."""
    return min(steps or size, size)


def masked(block: Block, positions: Sequence[int], spec: Spec) -> Block:
    """The block with `positions` undecided again; carriers refuse models without a mask id."""
    assert spec.mask_id is not None
    return block.mask(positions, spec.mask_id) if positions else block
