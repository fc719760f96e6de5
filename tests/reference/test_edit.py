"""Edit sampling against a loop that computes everything anew."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from . import edit
from .edit import Revision, Rules, joint_threshold
from .engine import Pair, compare, random_cases
from .models import MASK, Proposal

BLOCK = 4


def options(random: Random) -> dict[str, Any]:
    remask = {"remasking": True, "remask_threshold": random.choice((0.2, 0.4, 0.6))} if random.random() < 0.4 else {}
    return remask | {
        "block_size": BLOCK,
        "buffer_size": random.choice((1, 1, 2, 3)),
        "accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
        "edit_threshold": random.choice((0.0, 0.0, 0.3, 0.6, 1.0)),
        "max_post_edit_steps": random.choice((0, 1, 3, 16)),
        "penalty_lambda": random.choice((0.0, 0.0, 2.0)),
        "add_block_threshold": random.choice((0.0, 0.1, 0.5, 1.0)),
        "token_stability_threshold": random.choice((0.0, 0.0, 0.5, 1.0)),
    }


@pytest.mark.parametrize("count", [40, pytest.param(150, marks=pytest.mark.stress)])
def test_answers_are_those_of_the_loop(pairs: list[Pair], count: int, report: Callable[[str], None]) -> None:
    def loop(network, prompt, limit, fields):
        return edit.decode(network, prompt, limit, Rules(**fields))

    tally = compare(pairs, random_cases(7, count, BLOCK, options), "multi_bd_edit", loop)
    report(f"multi_bd_edit: {tally}")
    assert tally.compared > 2 * count // 3 and tally.stopped > count // 10


A, B, C, D, Z = 5, 6, 7, 8, 9
STEP = Rules(4, 1, accept_threshold=0.5)
NEW = Revision()


def after(tokens: list[int], proposed: list[tuple[int, float]], revision: Revision = NEW, rules: Rules = STEP):
    """The verdict on a block that the rule may write in full."""
    return joint_threshold(tokens, range(len(tokens)), [Proposal(*each) for each in proposed], revision, rules)


def test_confident_masks_become_tokens_at_once() -> None:
    verdict = after([MASK] * 4, [(A, 0.95), (B, 0.6), (C, 0.4), (D, 0.95)])
    assert verdict.tokens == [A, B, MASK, D] and not verdict.ready


def test_the_best_mask_becomes_a_token_if_none_is_confident() -> None:
    verdict = after([A, B, MASK, D], [(A, 0.9), (B, 0.9), (C, 0.4), (D, 0.9)])
    assert verdict.tokens == [A, B, C, D] and not verdict.ready


def test_a_token_is_edited_until_nothing_differs() -> None:
    verdict = after([A, B, C, D], [(Z, 0.3), (B, 0.9), (C, 0.9), (D, 0.9)])
    assert verdict.tokens == [Z, B, C, D] and verdict.revision.post == 1 and not verdict.ready
    verdict = after(verdict.tokens, [(Z, 0.3), (B, 0.9), (C, 0.9), (D, 0.9)], verdict.revision)
    assert verdict.tokens == [Z, B, C, D] and verdict.ready


def test_edits_end_after_so_many_forwards_without_masks() -> None:
    rules, tokens, revision = Rules(4, 1, max_post_edit_steps=2), [A, B, C, D], NEW
    for number in range(3):
        verdict = after(tokens, [(Z if tokens[0] == A else A, 0.9), (B, 0.9), (C, 0.9), (D, 0.9)], revision, rules)
        tokens, revision = verdict.tokens, verdict.revision
        assert verdict.ready == (number == 2)
    assert tokens == [A, B, C, D]


@pytest.mark.parametrize(("steps", "tokens"), [(20, [6, 3, 4, 8]), (19, [6, MASK, 4, 8])])
def test_a_block_is_filled_when_its_time_is_over(steps: int, tokens: list[int]) -> None:
    verdict = after([5, MASK, MASK, 8], [(6, 0.3), (3, 0.1), (4, 0.2), (8, 0.9)], Revision(steps))
    assert verdict.tokens == tokens and verdict.ready == (steps == 20)


def test_a_doubtful_token_is_masked_again_once() -> None:
    rules = Rules(4, 1, accept_threshold=0.5, remasking=True)
    verdict = after([A, B, C, D], [(Z, 0.3), (B, 0.9), (C, 0.3), (D, 0.9)], NEW, rules)
    assert verdict.tokens == [MASK, B, MASK, D] and verdict.revision.remasked == {0, 2}
    verdict = after([Z, B, C, D], [(A, 0.3), (B, 0.9), (C, 0.3), (D, 0.9)], verdict.revision, rules)
    assert verdict.tokens == [A, B, C, D]
