"""Edit sampling against a loop that computes everything anew."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from . import edit
from .edit import Rules
from .engine import Pair, compare, random_cases

BLOCK = 4


def options(random: Random) -> dict[str, Any]:
    remask = {"remasking": True, "remask_threshold": random.choice((0.2, 0.4, 0.6))} if random.random() < 0.4 else {}
    return remask | {
        "block_size": BLOCK,
        "buffer_size": random.choice((1, 1, 2, 3)),
        "accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
        "edit_threshold": random.choice((0.0, 0.0, 0.3, 0.6, 1.0)),
        "max_post_edit_steps": random.choice((0, 1, 3, 16)),
        "penalty_lambda": random.choice((0.0, 0.0, 2.0)),
        "add_block_threshold": random.choice((0.0, 0.1, 0.5, 1.0)),
        "token_stability_threshold": random.choice((0.0, 0.0, 0.5, 1.0)),
    }


@pytest.mark.parametrize("count", [40, pytest.param(150, marks=pytest.mark.stress)])
def test_answers_are_those_of_the_loop(pairs: list[Pair], count: int, report: Callable[[str], None]) -> None:
    def loop(network, prompt, limit, fields):
        return edit.decode(network, prompt, limit, Rules(**fields))

    tally = compare(pairs, random_cases(7, count, BLOCK, options), "multi_bd_edit", loop)
    report(f"multi_bd_edit: {tally}")
    assert tally.compared > 2 * count // 3 and tally.stopped > count // 10
