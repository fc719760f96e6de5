"""DMax against a loop that computes everything anew."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch

from . import dmax
from .dmax import Rules, Soft, merged_embedding
from .engine import Pair, compare, random_cases
from .models import EOS, MASK, ROWS, WORDS, Dense

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


class Recited(Dense):
    """Says token `3 + position` for every position, as sure as it is told for each forward; notes what it is fed as."""

    def __init__(self, confidences: list[list[float]]) -> None:
        self.confidences = iter(confidences)
        self.shift, self.smallest = 0, 1.0
        self.table = torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(0))
        self.fed: list[torch.Tensor] = []

    @property
    def embedding(self) -> torch.Tensor:
        return self.table

    def predict(self, tokens, group, inputs=None):
        del group
        assert inputs is not None
        self.fed.append(inputs[4:])
        sure = torch.tensor([0.5] * 4 + next(self.confidences))
        rows = ((1 - sure) / (WORDS - 3)).log()[:, None].repeat(1, ROWS)
        for position in range(len(tokens)):
            rows[position, 3 + position] = sure[position].log()
        rows[:, EOS] = -1e4
        return rows


def test_tokens_are_fed_as_blends_of_what_the_forward_before_said() -> None:
    network = Recited([[0.95, 0.6, 0.4, 0.95], [0.7, 0.7, 0.4, 0.95], [0.7, 0.7, 0.7, 0.95], [0.7, 0.7, 0.7, 0.7]])
    rules = Rules(4, accept_threshold=0.5)
    assert dmax.decode(network, [3, 4, 5, 6], 8, rules) == [7, 8, 9, 10]
    blends = [[], [0.95, 0.6], [0.7, 0.7, 0.4], [0.7, 0.7, 0.7, 0.95]]
    assert len(network.fed) == len(blends)
    for fed, known in zip(network.fed, blends, strict=True):
        expected = [merged_embedding(network.table, Soft([7 + i], [sure]), rules, 7 + i) for i, sure in enumerate(known)]
        torch.testing.assert_close(fed, torch.stack([*expected, *[network.table[MASK]] * (4 - len(known))]))
