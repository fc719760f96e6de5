"""Strided decoding against a loop that keeps a list of ids, and against itself without proposals."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from . import strided
from .causal import CLOSE, Draws, asked, engine_decode, preferring
from .engine import Pair
from .models import Dense


def options(random: Random) -> dict[str, Any]:
    return {"block_size": random.choice((0, 1, 2, 3, 3, 5))}


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.stress)])
def test_tokens_and_passes_are_those_of_the_loop(pairs: list[Pair], count: int, report: Callable[[str], None]) -> None:
    compared = stopped = tokens = passes = 0
    for index, case in enumerate(asked(3, count, options)):
        pair = pairs[index % len(pairs)]
        with preferring(pair, case.likely):
            network, masks = Dense(pair.network), case.options["block_size"]
            draws = Draws(network, case.seed, case.temperature)
            expected, forwards = strided.decode(network, case.prompt, case.limit, masks, draws)
            one_by_one, each = (expected, forwards)
            if index % 5 == 0:
                one_by_one, each = strided.decode(network, case.prompt, case.limit, 0, draws)
            if network.smallest < CLOSE:
                continue
            spec = replace(pair.checkpoint.spec, head_shift=1)
            found = engine_decode(pair, case, "strided", spec)
        assert (list(found.answer), found.steps, found.nfe) == (expected, forwards, forwards), case
        assert expected == one_by_one and forwards <= each
        compared += 1
        stopped += len(expected) < case.max_tokens
        if masks:
            tokens, passes = tokens + len(expected), passes + forwards
    report(f"strided: {compared} answers compared, {stopped} stopped early, {tokens / passes:.2f} tokens per forward pass")
    assert compared > 0.9 * count and stopped > count // 10 and tokens > 1.1 * passes
