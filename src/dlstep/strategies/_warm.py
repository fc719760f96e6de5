"""Whether the device holds keys and values of a window that may be read although they are not final."""

from dataclasses import dataclass, replace

from ..core import Extra, Sequence


@dataclass(frozen=True, slots=True)
class Warm(Extra):
    """Keys and values of all positions that the block's forwards see are on the device, each as some forward stored it.

    `undecided` is how many positions of the block were undecided when all of them were stored, for those who ask.
    """

    undecided: int = 0


WARM = Warm()


def warmed(sequence: Sequence) -> Sequence:
    """`sequence` after a forward that stored all that the next ones of its block may read."""
    return sequence if sequence.extra is not None else replace(sequence, extra=WARM)


def refreshed(sequence: Sequence, undecided: int) -> Sequence:
    """`sequence` after a forward that stored everything, with so many positions of the block undecided."""
    return replace(sequence, extra=Warm(undecided))


def cooled(sequence: Sequence) -> Sequence:
    """`sequence` when its next forward must store everything: a block begins, or the device holds nothing of it."""
    return sequence if sequence.extra is None else replace(sequence, extra=None)
