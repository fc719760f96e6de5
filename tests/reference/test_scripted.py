"""Many cases in which only decisions matter: ties, exact thresholds, blocks that come to rest and some that do not."""

from random import Random

import pytest

from dlstep import strategies

from .loops import OPTIONS, loop_of
from .models import EOS, WORDS
from .scripted import Piecewise, Scripted, scripted_answer

TIES = {"multi_bd": "highest", "d2f": "highest", "multi_bd_edit": "lowest", "dmax": "lowest"}


def many(count, stress):
    """So many cases, and more by `make stress`."""
    return pytest.mark.parametrize("count", [count, pytest.param(stress, marks=pytest.mark.stress)])


def options_of(name, random):
    """Options of a strategy, with thresholds, if any, that probabilities often equal."""
    fields = OPTIONS[name](random)
    for threshold in ("accept_threshold", "edit_threshold"):
        if threshold in fields:
            fields[threshold] = random.choice((0.0, 0.3, 0.5, 0.6, 0.9, 1.0))
    return fields


@pytest.mark.parametrize("name", TIES)
@many(200, 700)
def test_windows_unmask_as_the_loop_does(name, count):
    random, stopped = Random(1), 0
    for seed in range(count):
        fields = options_of(name, random)
        fields["block_size"] = size = random.choice((1, 2, 3, 4, 6))
        prompt = [random.randrange(EOS, WORDS) for _ in range(random.randrange(1, 2 * size + 2))]
        max_tokens, calm = random.randrange(1, 3 * size + 3), random.choice((0.0, 0.5, 0.9))
        networks = [Scripted(seed, calm, ties=TIES[name]) for _ in range(2)]
        expected = loop_of(name)(networks[0], prompt, len(prompt) + max_tokens, fields)
        answer = scripted_answer(networks[1], prompt, max_tokens, strategies.make(name, **fields))
        assert answer == expected, (seed, fields)
        stopped += len(expected) < max_tokens
    assert count // 20 < stopped < count


@pytest.mark.parametrize("name, shift", [("fast_dllm_v2", 1), ("dual_cache", 0), ("dual_cache", 1)])
@many(150, 500)
def test_parts_of_requests_unmask_as_the_loop_does(name, shift, count):
    """Of a network whose rows depend on a sub-block of the grid, or on a block of the canvas."""
    random = Random(2)
    for seed in range(count):
        fields = options_of(name, random)
        fields["block_size"] = size = random.choice((1, 2, 3, 4))
        prompt = [random.randrange(EOS, WORDS) for _ in range(random.randrange(1, 4 * size + 2))]
        max_tokens, calm = random.randrange(1, 6 * size), random.choice((0.0, 0.9))
        limit, origin = len(prompt) + max_tokens, len(prompt) if name == "dual_cache" else 0

        def unit(position, size=size, origin=origin, limit=limit):
            start = origin + (position - origin) // size * size
            return range(start, min(start + size, limit))

        networks = [Piecewise(seed, calm, ties="highest", shift=shift, unit=unit) for _ in range(2)]
        expected = loop_of(name)(networks[0], prompt, limit, fields)
        answer = scripted_answer(networks[1], prompt, max_tokens, strategies.make(name, **fields))
        assert answer == expected, (seed, fields)
