"""Multi-block diffusion and D2F against a loop that computes everything anew."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from . import blockwise
from .engine import Pair, compare, random_cases

BLOCK = 4


def options(random: Random) -> dict[str, Any]:
    return {
        "block_size": BLOCK,
        "buffer_size": random.choice((1, 2, 3)),
        "accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
        "semi_complete_threshold": random.choice((0.25, 0.5, 0.9, 1.0)),
        "add_block_threshold": random.choice((0.0, 0.1, 0.5, 1.0)),
        "token_stability_threshold": random.choice((0.0, 0.0, 0.5)),
    }


@pytest.mark.parametrize("head_shift", [0, 1])
@pytest.mark.parametrize("name", ["multi_bd", "d2f"])
@pytest.mark.parametrize(("count", "compared", "stopped"), [(36, 24, 2), pytest.param(120, 100, 15, marks=pytest.mark.stress)])
def test_answers_are_those_of_the_loop(
    pairs: list[Pair], count: int, compared: int, stopped: int, name: str, head_shift: int, report: Callable[[str], None]
) -> None:
    def loop(network, prompt, limit, fields):
        return blockwise.decode(network, prompt, limit, blockwise.Rules(**fields, from_prompt=name == "d2f"))

    tally = compare(pairs, random_cases(head_shift, count, BLOCK, options), name, loop, head_shift)
    report(f"{name}, shift {head_shift}: {tally}")
    assert tally.compared > compared and tally.stopped > stopped
