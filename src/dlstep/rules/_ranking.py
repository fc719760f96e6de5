"""Selections that several rules share: the highest scores, and the entropy bound."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


def highest(scores: Sequence[float], count: int) -> list[int]:
    """Return the indices of the `count` largest scores, ascending; ties go to the lowest index."""
    if count == 1:
        return [scores.index(max(scores))]
    if count >= len(scores):
        return list(range(len(scores)))
    falling = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    return sorted(falling[:count])


def accepted(entropies: tuple[float, ...], bound: float) -> list[int]:
    """Return the indices, ascending, whose predecessors' entropies sum to at most `bound`.

    Predecessors have a lower entropy or, in ties, a lower index. The first is always accepted.
    """
    ordered = sorted(entropies)
    count = bisect_right(list(accumulate(ordered)), bound) + 1
    if count >= len(ordered):
        return list(range(len(ordered)))
    largest = ordered[count - 1]
    kept = [index for index, entropy in enumerate(entropies) if entropy <= largest]
    if len(kept) == count:
        return kept
    # In a tie with the last accepted entropy, drop the highest indices.
    gone = [index for index in kept if entropies[index] == largest][count - len(kept) :]
    return [index for index in kept if index not in gone]
