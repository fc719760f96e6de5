"""Fast-dLLM v2 against a loop that splices keys and values by hand."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from . import fast_dllm_v2
from .engine import Pair, compare, random_cases
from .fast_dllm_v2 import Rules


def options(random: Random) -> dict[str, Any]:
    return {
        "block_size": 2,
        "buffer_size": random.choice((2, 2, 3)),
        "accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
        "fdv2_use_block_cache": random.random() < 0.7,
    }


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.stress)])
def test_answers_are_those_of_the_loop(pairs: list[Pair], count: int, report: Callable[[str], None]) -> None:
    def loop(network, prompt, limit, fields):
        return fast_dllm_v2.decode(network, prompt, limit, Rules(**fields))

    tally = compare(pairs, random_cases(13, count, 4, options), "fast_dllm_v2", loop, head_shift=1)
    report(f"fast_dllm_v2: {tally}")
    assert tally.compared > 2 * count // 3 and tally.stopped > count // 10
