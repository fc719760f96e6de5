"""DMax against a loop that computes everything anew."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from . import dmax
from .dmax import Rules
from .engine import Pair, compare, random_cases

BLOCK = 4


def options(random: Random) -> dict[str, Any]:
    merges = (
        {"token_merge_renormalize": random.random() < 0.6},
        {"token_merge_mode": "iter_smooth_topk", "token_merge_top_k": random.choice((1, 2, 5)), "token_merge_weight": 0.5},
        {"token_merge_mode": "iter_smooth_topk", "token_merge_top_k": random.choice((1, 2, 5))},
        {"token_merge_weight": 0.0},
    )
    return random.choice(merges[:1] + merges) | {
        "block_size": BLOCK,
        "buffer_size": random.choice((1, 1, 2, 3)),
        "accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
        "add_block_threshold": random.choice((0.0, 0.1, 0.5, 1.0)),
        "token_stability_threshold": random.choice((0.0, 0.0, 0.5, 1.0)),
    }


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.stress)])
def test_answers_are_those_of_the_loop(pairs: list[Pair], count: int, report: Callable[[str], None]) -> None:
    def loop(network, prompt, limit, fields):
        return dmax.decode(network, prompt, limit, Rules(**fields))

    tally = compare(pairs, random_cases(11, count, BLOCK, options), "dmax", loop)
    report(f"dmax: {tally}")
    assert tally.compared > 2 * count // 3 and tally.stopped > count // 10
