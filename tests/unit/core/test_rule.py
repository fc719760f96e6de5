"""Checks of what a rule returns: they accept exactly what is right, and say what is wrong with the rest."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from dlstep.core import NO_SAMPLES, Block, Choice, Config, Request, SequenceState, SpanSamples, Spec, add, chosen_by, init
from dlstep.core.errors import WrongAnswer
from dlstep.strategies.multi_bd import MultiBD

MASKED = (20, 21, 23)
MASK = 49
BLOCK = Block(20, tuple(MASK if p in MASKED else 7 for p in range(20, 24)), MASKED, (0.0, 0.0, 0.9, 0.0))
(SEQUENCE,) = add(init(Config(Spec(MASK, (48,), 50)), MultiBD()), Request(0, (1, 2))).waiting


@dataclass(frozen=True, slots=True)
class Mine(Choice):
    """A rule that chooses `rows`."""

    rows: Any = ()

    def chosen(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
        return self.rows


OFFSETS = range(-1, len(MASKED) + 1)  # from `begin`: those in range, and one beyond each end
OTHERS = [None, set(), {2}, (2.0,), [2.0], [True], "rows", 2, range(2, 4)]


@pytest.mark.parametrize("must", [True, False])
@pytest.mark.parametrize("begin", [1, 2, 20])
def test_rows_are_accepted_exactly_if_they_ascend_in_range(begin: int, must: bool) -> None:
    """All lists of up to three rows: the range is small, so that none is left to chance."""
    lists = [[begin + offset for offset in offsets] for size in range(4) for offsets in product(OFFSETS, repeat=size)]
    for chosen in [*lists, *OTHERS]:
        check_verdict(chosen, begin, must)


def check_verdict(chosen: Any, begin: int, must: bool) -> None:
    """Check that the rows are accepted exactly if they are right, and that an error names the method."""
    right = (
        type(chosen) is list
        and all(type(row) is int and begin <= row < begin + len(MASKED) for row in chosen)
        and chosen == sorted(set(chosen))
        and (bool(chosen) or not must)
    )
    try:
        chosen_by(Mine(chosen), SEQUENCE, BLOCK, NO_SAMPLES, begin, must)
    except WrongAnswer as error:
        assert not right and str(error).startswith("Mine.chosen (test_rule.py:") and "\n" not in str(error)
    else:
        assert right
