"""Fast-dLLM v2 against a loop that splices keys and values by hand."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch

from . import fast_dllm_v2
from .engine import Pair, compare, random_cases
from .fast_dllm_v2 import Rules
from .models import MASK, ROWS, WORDS, Dense


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


class Recited(Dense):
    """Says token `3 + position` for every position, as sure as it is told for each forward; notes what it is fed."""

    def __init__(self, confidences: list[dict[int, float]]) -> None:
        self.confidences = iter(confidences)
        self.shift, self.smallest = 1, 1.0
        self.fed: list[tuple[int, int, list[int]]] = []

    def forward(self, tokens, start, past, sees=None):
        del past, sees
        stop = start + len(tokens)
        self.fed.append((start, stop, [start + i for i, token in enumerate(tokens) if token == MASK]))
        sure = next(self.confidences)
        rows = torch.full((len(tokens), ROWS), -1e4)
        for offset in range(len(tokens)):
            position = start + offset + 1
            confidence = torch.tensor(sure.get(position, 0.5))
            rows[offset, :WORDS] = ((1 - confidence) / (WORDS - 2)).log()
            rows[offset, 3 + position] = confidence.log()
        return rows, [(torch.zeros(1, 1, len(tokens), 1),) * 2]


def test_a_block_is_opened_refined_and_stored() -> None:
    # For each forward: what it feeds, the masked positions in it, and how sure it is of those it is asked about.
    steps = [
        ((0, 16), [13, 14, 15], {13: 0.95, 14: 0.4, 15: 0.3}),
        ((12, 16), [14, 15], {14: 0.97, 15: 0.2}),
        ((12, 16), [15], {15: 0.6}),
        ((0, 16), [], {16: 0.5}),  # stores the block; its last row gives the next one its first token
        ((0, 24), list(range(17, 24)), {17: 0.5, 18: 0.6, 19: 0.7}),
        ((16, 20), [17, 18], {17: 0.5, 18: 0.95}),
        ((16, 20), [17], {17: 0.4}),
        ((0, 24), [20, 21, 22, 23], {20: 0.3, 21: 0.8, 22: 0.2, 23: 0.1}),  # the next sub-block starts with a mask
        ((0, 24), [20, 22, 23], {20: 0.95, 22: 0.92, 23: 0.5}),
        ((20, 24), [23], {23: 0.5}),
    ]
    network = Recited([sure for _, _, sure in steps])
    answer = fast_dllm_v2.decode(network, list(range(3, 16)), 24, Rules(4, 2, 0.9))
    assert answer == list(range(16, 27))
    assert network.fed == [(*span, masked) for span, masked, _ in steps]
