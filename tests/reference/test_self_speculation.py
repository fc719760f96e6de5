"""Self-speculation against a loop that keeps a list of ids, and against autoregressive decoding of the engine."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from . import self_speculation
from .causal import CLOSE, Draws, asked, engine_decode, preferring
from .engine import Pair
from .models import Dense


def options(random: Random) -> dict[str, Any]:
    return {"block_size": random.choice((1, 2, 4, 4, 8))}


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.stress)])
def test_tokens_and_passes_are_those_of_the_loop(pairs: list[Pair], count: int, report: Callable[[str], None]) -> None:
    compared = stopped = tokens = verified = total = 0
    for index, case in enumerate(asked(7, count, options)):
        pair = pairs[index % len(pairs)]
        with preferring(pair, case.likely):
            network, size = Dense(pair.network), case.options["block_size"]
            draws = Draws(network, case.seed, case.temperature)
            expected, drafts, others = self_speculation.decode(network, case.prompt, case.limit, size, draws)
            if network.smallest < CLOSE:
                continue
            spec = replace(pair.checkpoint.spec, head_shift=0)
            found = engine_decode(pair, case, "self_speculation", spec)
            if index % 5 == 0:
                plain = engine_decode(pair, replace(case, options={}), "autoregressive", spec)
                ends = plain.finish == "stop"  # one more pass, for the end of sequence
                assert found.answer == plain.answer and others <= plain.steps == len(plain.answer) + ends
                assert found.probabilities == pytest.approx(plain.probabilities, abs=1e-4)
        assert (list(found.answer), found.steps, found.nfe) == (expected, drafts + others, drafts + others), case
        compared += 1
        stopped += len(expected) < case.max_tokens
        if size > 1:
            tokens, verified, total = tokens + len(expected), verified + others, total + drafts + others
    report(
        f"self_speculation: {compared} answers compared, {stopped} stopped early, {tokens / verified:.2f} tokens per pass that "
        f"verifies, {tokens / total:.2f} per forward pass"
    )
    assert compared > 0.9 * count and stopped > count // 10 and tokens > 1.2 * verified
