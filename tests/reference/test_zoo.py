"""Every decoding rule against its slow loop, on grids and on canvases."""

from random import Random

import pytest

from dlstep.rules.ada_block import AdaBlock
from dlstep.strategies.dual_cache import DualCache

from .models import WORDS
from .zoo import Network, canvases, check, decode_canvas, engine_answer, grids, problem
from .zoo_taking_back import MAKES, walk
from .zoo_which import BOTH, dream, quota, threshold
from .zoo_windows import decode_adaptively, early_commit, sliding, some_inner


def by_name(given):
    return given.__name__


@pytest.mark.full
@pytest.mark.parametrize("carry", [grids, canvases], ids=by_name)
@pytest.mark.parametrize("make", [*BOTH, *MAKES], ids=by_name)
def test_rules_unmask_as_their_loop_does(make, carry):
    check(make, carry)


@pytest.mark.parametrize("make", [dream, sliding, early_commit], ids=by_name)
def test_rules_of_canvases_unmask_as_their_loop_does(make):
    check(make, canvases)


@pytest.mark.parametrize("carry", [grids, canvases], ids=by_name)
@pytest.mark.parametrize("make", [threshold, quota], ids=by_name)
def test_rules_around_pins_take_as_many_forwards_as_their_loop(make, carry):
    check(make, carry, pinned=True)


def test_remdm_answers_as_if_every_step_ran_a_forward():
    """Only forwards whose tokens are not kept are left out: greedy answers are those of the paper's loop."""
    random, fewer = Random(3), 0
    for number in range(100):
        rule, slow = walk(random)
        size, length = random.choice((1, 3, 8)), random.randrange(1, 20)
        network, prompt = Network(number, 0.3), [5, 6, 7]
        expected = decode_canvas(network, prompt, 3 + length, slow.every, size, remasks=True, seed=number)
        strategy = DualCache(block_size=size, cache="none", rule=rule)
        answer, forwards = engine_answer(network, prompt, 3 + length, strategy, number)
        assert answer == expected[0], (number, strategy)
        assert forwards <= expected[1]
        fewer += forwards < expected[1]
    assert fewer > 20


def test_ada_block_ends_blocks_where_its_loop_does():
    """Decisions of the engine and of the loop, on canvases; a fair share of the blocks must end early."""
    random, shorter, stopped = Random(3), 0, 0
    for number in range(200):
        inner, unmask = some_inner(random)
        size, delimiters = random.choice((1, 2, 3, 4, 8)), tuple(random.sample(range(WORDS), random.choice((0, 2, 5, WORDS))))
        rule = AdaBlock(delimiters, random.choice((0.0, 0.3, 0.5, 0.9, 1.0)), random.choice((0.1, 0.25, 0.5, 1.0)), inner)
        prompt, limit, network = problem(number, random, size)
        expected = decode_adaptively(network, prompt, limit, size, rule, unmask)
        assert engine_answer(network, prompt, limit, DualCache(size, "none", rule), number) == expected, (number, rule, size)
        fixed = decode_adaptively(network, prompt, limit, size, AdaBlock((), inner=inner), unmask)
        shorter += fixed != expected
        stopped += len(expected[0]) < limit - len(prompt)
    assert shorter > 15 and 0 < stopped < 200
