"""Whether the device holds non-final keys and values of a window that later passes may read."""

from dataclasses import dataclass, replace

from ..core import Extra, Sequence


@dataclass(frozen=True, slots=True)
class Warm(Extra):
    """Keys and values of all positions that the block's passes see are on the device.

    `undecided` is the number of the block's masks at the last refresh, for rules that need it.
    """

    undecided: int = 0


WARM = Warm()


def warmed(sequence: Sequence) -> Sequence:
    """Return `sequence` after a pass that stored all that later passes of its block may read."""
    return sequence if sequence.extra is not None else replace(sequence, extra=WARM)


def refreshed(sequence: Sequence, undecided: int) -> Sequence:
    """Return `sequence` after a refresh with this many undecided positions in the block."""
    return replace(sequence, extra=Warm(undecided))


def cooled(sequence: Sequence) -> Sequence:
    """Return `sequence` with a refresh due: a block begins, or the device lost the cache."""
    return sequence if sequence.extra is None else replace(sequence, extra=None)
