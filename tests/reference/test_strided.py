"""Strided decoding against a loop that keeps a list of ids, and against the engine without proposals."""

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


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.stress)])
def test_tokens_and_passes_are_those_of_the_loop(pairs: list[Pair], count: int, report: Callable[[str], None]) -> None:
    compared = stopped = tokens = passes = 0
    for index, case in enumerate(asked(3, count, options)):
        pair = pairs[index % len(pairs)]
        with preferring(pair, case.likely):
            network, masks = Dense(pair.network), case.options["block_size"]
            draws = Draws(network, case.seed, case.temperature)
            expected, forwards = strided.decode(network, case.prompt, case.limit, masks, draws)
            if network.smallest < CLOSE:
                continue
            spec = replace(pair.checkpoint.spec, head_shift=1)
            found = engine_decode(pair, case, "strided", spec)
            if index % 5 == 0:
                plain = engine_decode(pair, replace(case, options={"block_size": 0}), "strided", spec)
                ends = plain.finish == "stop"  # one more pass, for the end of sequence
                assert found.answer == plain.answer and found.steps <= plain.steps == len(plain.answer) + ends
                assert found.probabilities == pytest.approx(plain.probabilities, abs=1e-4)
        assert (list(found.answer), found.steps, found.nfe) == (expected, forwards, forwards), case
        compared += 1
        stopped += len(expected) < case.max_tokens
        if masks:
            tokens, passes = tokens + len(expected), passes + forwards
    report(f"strided: {compared} answers compared, {stopped} stopped early, {tokens / passes:.2f} tokens per forward pass")
    assert compared > 0.9 * count and stopped > count // 10 and tokens > 1.1 * passes
