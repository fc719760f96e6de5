"""Fast-dLLM with its caches against a loop that splices keys and values by hand."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dlstep.rules.quota import Quota

from . import dual_cache
from .dual_cache import Rules
from .engine import Pair, compare, random_cases


def options(random: Random) -> dict[str, Any]:
    if random.random() < 0.5:
        accept: dict[str, Any] = {"accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0))}
    else:
        accept = {"rule": Quota(random.choice((1, 2, 3, 9)))}
    return accept | {"block_size": random.choice((3, 4)), "cache": random.choice(("none", "prefix", "dual", "dual"))}


def rules_of(fields: dict[str, Any]) -> Rules:
    """The same options as the loop knows them."""
    others = {name: option for name, option in fields.items() if name != "rule"}  # the fields are the engine's, too
    steps = {"steps_per_block": fields["rule"].steps_per_block} if "rule" in fields else {}
    return Rules(**others, **steps)


@pytest.mark.parametrize("head_shift", [0, 1])
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.stress)])
def test_answers_are_those_of_the_loop(pairs: list[Pair], count: int, head_shift: int, report: Callable[[str], None]) -> None:
    def loop(network, prompt, limit, fields):
        return dual_cache.decode(network, prompt, limit, rules_of(fields))

    tally = compare(pairs, random_cases(17, count, 4, options), "dual_cache", loop, head_shift)
    report(f"dual_cache, shift {head_shift}: {tally}")
    assert tally.compared > 3 * count // 4 and tally.stopped > count // 10
