"""Checks of what a rule returns: they accept exactly what is right, and say what is wrong with the rest."""

from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import pytest

from dlstep.core import NO_SAMPLES, Block, Choice, Request, SpanSamples, check_chosen
from dlstep.core.errors import WrongAnswer
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import MASK

from ...helpers.decoding import SPEC, waiting
from ...helpers.passes import pass_of

MASKED = (20, 21, 23)
BLOCK = Block(20, tuple(MASK if p in MASKED else 7 for p in range(20, 24)), MASKED, (0.0, 0.0, 0.9, 0.0))
SEQUENCE = waiting(MultiBD(), Request(0, (1, 2)))


@dataclass(frozen=True, slots=True)
class Mine(Choice):
    """A rule that chooses `indices`."""

    indices: Any = ()

    def chosen(self, block_pass):
        return self.indices


INDICES = range(-1, len(MASKED) + 1)  # those in range, and one beyond each end
OTHERS = [None, set(), {2}, (2.0,), [2.0], [True], "rows", 2, range(2), [*MASKED]]


@pytest.mark.parametrize("must", [True, False])
def test_indices_are_accepted_exactly_if_they_ascend_in_range(must):
    """All lists of up to three indices: the range is small, so that none is left to chance."""
    lists = [list(indices) for size in range(4) for indices in product(INDICES, repeat=size)]
    for chosen in [*lists, *OTHERS]:
        check_verdict(chosen, must)


def check_verdict(chosen, must):
    """Check that the indices are accepted exactly if they are right, and that an error names the method."""
    right = (
        type(chosen) is list
        and all(type(index) is int and 0 <= index < len(MASKED) for index in chosen)
        and chosen == sorted(set(chosen))
        and (bool(chosen) or not must)
    )
    rule = Mine(chosen)
    block_pass = pass_of(rule, SEQUENCE, BLOCK, NO_SAMPLES, SPEC, must=must)
    try:
        check_chosen(rule, block_pass, rule.chosen(block_pass))
    except WrongAnswer as error:
        assert not right and str(error).startswith("Mine.chosen (test_rule.py:") and "\n" not in str(error)
    else:
        assert right


@dataclass(frozen=True, slots=True)
class Elsewhere(Mine):
    """A choice that samples other positions than the masked ones."""

    positions: tuple[int, ...] = ()

    def sampled(self, planned):
        return self.positions


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_choice_that_samples_other_positions_is_refused(size):
    """Otherwise a token sampled at one position would be written to another one."""
    for positions in combinations(range(20, 24), size):
        rule = Elsewhere([0], positions)
        samples = SpanSamples((5,) * size, (0.5,) * size)
        block_pass = pass_of(rule, SEQUENCE, BLOCK, samples, SPEC)
        if positions == MASKED:
            assert rule.commit(block_pass).tokens[0] == 5
        else:
            with pytest.raises(WrongAnswer, match=r"Elsewhere.sampled .*derive from Rule"):
                rule.commit(block_pass)
