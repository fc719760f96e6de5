"""Whether the device holds keys and values of a window that may be read although they are not final."""

from dataclasses import dataclass, replace

from ..core import Block, Extra, Sequence


@dataclass(frozen=True, slots=True)
class Warm(Extra):
    """Keys and values of all positions that the block's forwards see are on the device, each as some forward stored it."""


WARM = Warm()


def warmed(block: Block) -> Block:
    """`block` after a forward that stored all that its next ones may read."""
    return block if block.extra is not None else replace(block, extra=WARM)


def cooled(sequence: Sequence) -> Sequence:
    """`sequence` when the device holds nothing of it."""
    if all(block.extra is None for block in sequence.window):
        return sequence
    return replace(sequence, window=tuple(replace(block, extra=None) for block in sequence.window))
