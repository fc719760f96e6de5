"""Many cases in which only decisions matter: ties, exact thresholds, blocks that come to rest and some that do not."""

from random import Random

import pytest

from dlstep import strategies

from .loops import OPTIONS, loop_of
from .models import EOS, WORDS
from .scripted import Scripted, scripted_answer

TIES = {"multi_bd": "highest", "d2f": "highest", "multi_bd_edit": "lowest", "dmax": "lowest"}


def options_of(name, random):
    """Options of a strategy, with thresholds, if any, that probabilities often equal."""
    fields = OPTIONS[name](random)
    for threshold in ("accept_threshold", "edit_threshold"):
        if threshold in fields:
            fields[threshold] = random.choice((0.0, 0.3, 0.5, 0.6, 0.9, 1.0))
    return fields


@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("count", [100, pytest.param(700, marks=pytest.mark.stress)])
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
