"""Blocks of a causal network against a loop that keeps a list of ids."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dlstep.rules.quota import Quota

from . import causal_blocks
from .causal import CLOSE, Draws, asked, engine_decode, preferring
from .engine import Pair
from .models import Dense


def options(random: Random) -> dict[str, Any]:
    size = random.choice((1, 2, 4, 4, 8))
    if random.random() < 0.2:
        return {"block_size": size, "rule": Quota()}
    return {"block_size": size, "accept_threshold": random.choice((0.1, 0.3, 0.5, 0.9))}


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.stress)])
def test_tokens_and_passes_are_those_of_the_loop(pairs: list[Pair], count: int, report: Callable[[str], None]) -> None:
    compared = stopped = tokens = passes = 0
    for index, case in enumerate(asked(5, count, options)):
        pair, fields = pairs[index % len(pairs)], case.options
        with preferring(pair, case.likely):
            network = Dense(pair.network)
            draws = Draws(network, case.seed, case.temperature)
            size, accept = fields["block_size"], fields.get("accept_threshold")
            expected, forwards = causal_blocks.decode(network, case.prompt, case.limit, size, accept, draws)
            if network.smallest < CLOSE:
                continue
            found = engine_decode(pair, case, "causal_blocks", pair.checkpoint.spec)
        assert (list(found.answer), found.steps, found.nfe) == (expected, forwards, forwards), case
        compared += 1
        stopped += len(expected) < case.max_tokens
        tokens, passes = tokens + len(expected), passes + forwards
    report(
        f"causal_blocks: {compared} answers compared, {stopped} stopped early, {tokens / passes:.2f} tokens per forward pass"
    )
    assert compared > 0.8 * count and stopped > count // 10 and tokens > passes
