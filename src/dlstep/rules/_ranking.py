"""Choices that several rules share: the rows of a block that score highest, and the entropy bound."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


def highest(scores: Sequence[float], count: int) -> list[int]:
    """Indices of the `count` largest scores, ascending; of equal ones the lowest indices first."""
    if count == 1:
        return [scores.index(max(scores))]
    if count >= len(scores):
        return list(range(len(scores)))
    falling = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    return sorted(falling[:count])


def accepted(entropies: tuple[float, ...], bound: float) -> list[int]:
    """Indices that are accepted, ascending: each iff the entropies of those before it sum to at most `bound`.

    Before it are the less uncertain ones, and of equally uncertain ones those at lower indices. At least one is accepted.
    """
    ordered = sorted(entropies)
    count = bisect_right(list(accumulate(ordered)), bound) + 1
    if count >= len(ordered):
        return list(range(len(ordered)))
    largest = ordered[count - 1]
    kept = [index for index, entropy in enumerate(entropies) if entropy <= largest]
    if len(kept) == count:
        return kept
    # As uncertain as the last one that is accepted, but behind it.
    gone = [index for index in kept if entropies[index] == largest][count - len(kept) :]
    return [index for index in kept if index not in gone]
