"""Whether the device holds non-final keys and values of a window that later passes may read."""

from dataclasses import dataclass, replace

from ..core import Extra, SequenceState


@dataclass(frozen=True, slots=True)
class Warm(Extra):
    """State of a refreshed block: the device stores keys and values of all positions that its passes see.

    `num_masked` is the number of masked positions at the last refresh, for rules that need it.
    """

    num_masked: int = 0


WARM = Warm()


def warmed(sequence: SequenceState) -> SequenceState:
    """Return `sequence` after a pass that stored all that later passes of its block may read."""
    return sequence if sequence.extra is not None else replace(sequence, extra=WARM)


def refreshed(sequence: SequenceState, num_masked: int) -> SequenceState:
    """Return `sequence` after a refresh with this many masked positions in the block."""
    return replace(sequence, extra=Warm(num_masked))


def cooled(sequence: SequenceState) -> SequenceState:
    """Return `sequence` with a refresh due: a block begins, or the device lost the cache."""
    return sequence if sequence.extra is None else replace(sequence, extra=None)
