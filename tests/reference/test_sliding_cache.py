"""A sliding window with a cache against a loop that splices keys and values by hand."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
import torch

from dlstep.rules.sliding import Sliding
from dlstep.rules.threshold import Threshold

from .engine import Pair, compare, random_cases
from .fast_dllm_v2 import finished, without
from .models import MASK, Dense, Stored


def options(random: Random) -> dict[str, Any]:
    rule = Sliding(
        window=random.choice((1, 2, 3, 5)),
        max_window=random.choice((None, None, 2, 4)),
        refresh_count=random.choice((1, 2, 4, 16)),
        window_delay=random.choice((0, 0, 1, 3)),
        inner=Threshold(random.choice((0.0, 0.2, 0.5, 0.9)), inclusive=True),
    )
    return {"cache": random.choice(("none", "prefix", "dual", "dual")), "rule": rule}


def decode(network: Dense, prompt: Sequence[int], limit: int, fields: dict[str, Any]) -> list[int]:
    """The answer; a forward feeds the canvas, or the window with what is before it and, with a prefix cache, after it."""
    rule, cache, length = fields["rule"], fields["cache"], len(prompt)
    canvas = [*prompt, *[MASK] * (limit - length)]
    stored: Stored = []
    since, end = 0, length
    while True:
        masked = [position for position in range(length, limit) if canvas[position] == MASK]
        first = masked[0]
        while sum(position < end for position in masked) < rule.window and end < min(limit, first + (rule.max_window or limit)):
            end += 1
        if not stored or cache == "none" or since >= rule.refresh_count:
            start, since = 0, 0
            logits, stored = network.forward(canvas, 0, [])
        else:
            start = min(max(first - rule.window_delay, length), first - network.shift)
            stop = limit if cache == "prefix" else end
            others = [(without(keys, start, stop), without(values, start, stop)) for keys, values in stored]
            logits, new = network.forward(canvas[start:stop], start, others)
            stored = [
                (keys.clone().index_copy(2, at, own_keys), values.clone().index_copy(2, at, own_values))
                for (keys, values), (own_keys, own_values) in zip(stored, new, strict=True)
                for at in [torch.arange(start, stop)]
            ]
        proposals = {
            position: network.propose(logits[position - network.shift - start]) for position in masked if position < end
        }
        network.note_best([proposal.probability for proposal in proposals.values()])
        for proposal in proposals.values():
            network.note(proposal.probability - rule.inner.accept_threshold)
        chosen = [position for position in proposals if proposals[position].probability >= rule.inner.accept_threshold]
        chosen = chosen or [max(proposals, key=lambda position: proposals[position].probability)]
        for position in chosen:
            canvas[position] = proposals[position].token
        since += len(chosen)
        answer = finished(canvas, length)
        if answer is not None:
            return answer


@pytest.mark.parametrize("head_shift", [0, 1])
@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.stress)])
def test_answers_are_those_of_the_loop(pairs: list[Pair], count: int, head_shift: int, report: Callable[[str], None]) -> None:
    tally = compare(pairs, random_cases(18, count, 4, options), "dual_cache", decode, head_shift)
    report(f"sliding with a cache, shift {head_shift}: {tally}")
    assert tally.compared > 3 * count // 4 and tally.stopped > count // 10
