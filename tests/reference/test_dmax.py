"""DMax against a loop that computes everything anew."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch

from . import dmax
from .dmax import Rules, Soft, merged_embedding, uniform
from .engine import Pair, compare, random_cases
from .models import EOS, MASK, ROWS, WORDS, Dense, Proposal

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


M = MASK


@pytest.mark.parametrize(
    ("tokens", "proposed", "threshold", "expected"),
    [
        ([M, M, M, M], [(5, 0.95), (6, 0.6), (7, 0.4), (8, 0.95)], 0.5, [5, 6, M, M]),
        ([M, M, M], [(5, 0.3), (6, 0.99), (7, 0.99)], 0.5, [5, M, M]),
        ([M, 7, M], [(5, 0.6), (9, 0.1), (6, 0.3)], 0.5, [5, 9, M]),
        ([M, M], [(5, 0.5), (6, 1.0)], 0.5, [5, 6]),
        ([9, M, M], [(3, 0.39), (5, 0.95), (6, 0.2)], 0.9, [3, 5, M]),
    ],
)
def test_masks_are_filled_from_the_left_and_tokens_are_replaced(tokens, proposed, threshold, expected) -> None:
    verdict = uniform(tokens, range(len(tokens)), [Proposal(*each) for each in proposed], 1, threshold)
    assert verdict.tokens == expected


def test_a_block_is_ready_when_nothing_changed_or_everything_is_confident() -> None:
    same = [Proposal(5, 0.2), Proposal(6, 0.3), Proposal(7, 0.4)]
    assert uniform([5, 6, 7], range(3), same, 1, 0.5).ready
    assert not uniform([5, 6, 8], range(3), same, 1, 0.5).ready
    assert uniform([5, 6, 8], range(3), [Proposal(p.token, 0.9) for p in same], 1, 0.5).ready
    assert not uniform([5, M, M], range(3), [Proposal(p.token, 0.9) for p in same], 1, 0.95).ready


def test_a_block_is_ready_after_as_many_forwards_as_it_has_positions() -> None:
    verdict = uniform([5, M, M], range(3), [Proposal(6, 0.1), Proposal(7, 0.1), Proposal(8, 0.1)], 3, 0.5)
    assert verdict.ready and verdict.tokens == [6, 7, 8]


@pytest.mark.parametrize(
    ("soft", "rules", "expected"),
    [
        (Soft([3], [0.6]), Rules(4), (2.5412, 2.2588)),
        (Soft([3], [0.6]), Rules(4, token_merge_renormalize=False), (1.8, 1.6)),
        (Soft([3], [1.0]), Rules(4), (3.0, 0.0)),
        (Soft([3, 4], [0.6, 0.3]), Rules(4), (2.4476, 1.3598)),
        (Soft([3, 4], [0.6, 0.3]), Rules(4, token_merge_mode="iter_smooth_topk", token_merge_weight=0.5), (3.9, 0.3)),
        (Soft([5], [0.5]), Rules(4), (0.0, 0.0)),
    ],
)
def test_a_soft_token_lies_between_the_token_and_the_mask(soft: Soft, rules: Rules, expected: tuple[float, float]) -> None:
    embedding = torch.zeros(6, 2)
    embedding[3], embedding[4], embedding[MASK] = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([0.0, 4.0])
    if soft.ids == [5]:  # token and mask cancel each other
        embedding[5], embedding[MASK] = torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0])
    assert merged_embedding(embedding, soft, rules, 3).tolist() == pytest.approx(expected, abs=1e-4)


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
