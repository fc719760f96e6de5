"""Laws of the figures: parts add up, order and batching change nothing, comparing is symmetric."""

import math
from fractions import Fraction
from itertools import permutations
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dlstep.evaluate.metrics import Answers, ForwardSums, Pair, ratio, wilson

COUNTS = st.integers(0, 500)


@st.composite
def pairs(draw: st.DrawFn, least: int = 1, most: int = 30) -> list[Pair]:
    """Answers to as many documents."""
    found: list[Pair] = []
    for document in range(draw(st.integers(least, most))):
        steps = draw(st.integers(0, 50))
        row: dict[str, Any] = {
            "document": document,
            "tokens": draw(st.lists(st.integers(0, 3), max_size=8)),
            "steps": steps,
            "score": float(draw(st.booleans())),
            "finish": draw(st.sampled_from(["stop", "length", "rejected", "error"])),
        }
        beside = {"forwards": steps + draw(st.integers(0, 5)), "computed": draw(COUNTS), "wasted": draw(st.integers(0, 9))}
        found.append((row, beside))
    return found


def totals(found: list[Pair]) -> Answers:
    """The sums of answers."""
    return Answers.total(Answers.of(*pair) for pair in found)


@given(pairs(), st.data())
def test_parts_add_up_to_the_whole_in_any_order(found: list[Pair], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(found)))
    assert totals(found[:cut]) + totals(found[cut:]) == totals(found)
    assert totals(list(data.draw(st.permutations(found)))) == totals(found)


@given(st.lists(st.builds(ForwardSums, *[COUNTS] * 6), max_size=6))
def test_work_adds_up_in_any_order(each: list[ForwardSums]) -> None:
    assert all(ForwardSums.total(order) == ForwardSums.total(each) for order in list(permutations(each))[:24])


@given(pairs(least=2))
def test_a_ratio_is_one_of_sums_and_errors_are_those_of_the_textbook(found: list[Pair]) -> None:
    sums = totals(found)
    tokens = [len(row["tokens"]) for row, _ in found]
    forwards = [beside["forwards"] for _, beside in found]
    scores = [row["score"] for row, _ in found]
    count = len(found)
    assert sums.accuracy == pytest.approx(mean(scores))
    assert sums.accuracy_interval == wilson(sum(scores), count)
    assert sums.forwards_per_answer_error == pytest.approx(stdev(forwards) / math.sqrt(count), abs=1e-6)
    if sum(forwards):
        rate = Fraction(sum(tokens), sum(forwards))
        assert sums.tokens_per_forward == float(rate)
        left = [float(t - rate * f) for t, f in zip(tokens, forwards, strict=True)]  # they sum to 0
        assert sums.tokens_per_forward_error == pytest.approx(stdev(left) / math.sqrt(count) / mean(forwards), abs=1e-6)
    else:
        assert sums.tokens_per_forward == sums.tokens_per_forward_error == 0
    steps = sum(row["steps"] for row, _ in found)
    assert sums.tokens_per_step == (sum(tokens) / steps if steps else 0)
    assert sums.tokens_per_step >= sums.tokens_per_forward or not steps
    assert sums.failed == sum(row["finish"] in ("rejected", "error") for row, _ in found)


def test_ratios_of_sums_are_not_means_of_ratios() -> None:
    rows: list[Pair] = [
        ({"tokens": [1] * tokens, "steps": 1, "score": 1.0, "finish": "stop"}, {"forwards": n, "computed": n, "wasted": 0})
        for tokens, n in ((10, 1), (10, 9))
    ]
    assert totals(rows).tokens_per_forward == 2.0  # the mean of 10 and 1.11 is 5.56
    assert ratio(1, 0) == 0
