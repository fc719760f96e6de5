"""Rates of sets of options under several loads, and which set is chosen for each."""

from itertools import count

import pytest

from dlstep import LLM, SamplingParams
from dlstep.bench.load import LEAST, ROUNDS, Rate, chosen_at, measured, rates
from dlstep.evaluate.items import items_of, read_documents
from dlstep.evaluate.metrics import Answers
from dlstep.evaluate.options import EvalOptions, grid_of

from ..evaluate.running import engine


def rate(size: int, live: int, *each: float) -> Rate:
    """A rate with a size of the buffer."""
    return Rate((("buffer_size", size),), live, each)


def test_the_fastest_that_is_accurate_enough_is_chosen_and_noise_decides_nothing() -> None:
    answers = {
        (("buffer_size", size),): Answers.counted(score=score, tokens=1, forwards=1, steps=1)
        for size, score in ((1, 1.0), (2, 0.99), (4, 0.5))
    }
    found = [rate(1, 1, 90, 100, 110), rate(2, 1, 101, 102, 103), rate(4, 1, 900, 900, 900)]
    found += [rate(1, 8, 99, 100, 101), rate(2, 8, 150, 151, 152), rate(4, 8, 10, 10, 10)]
    chosen = chosen_at(found, answers, 0.98)
    assert [dict(chosen[live].options)["buffer_size"] for live in (1, 8)] == [1, 2]
    assert dict(chosen_at(found, answers, 0.5)[1].options) == {"buffer_size": 4}
    assert dict(chosen_at(found, answers, 1.0)[8].options) == {"buffer_size": 1}


def test_a_rate_is_a_median_and_its_noise_that_of_one_measurement() -> None:
    found = rate(1, 1, 5.0, 9.0, 6.0)
    assert found.tokens_per_second == 6.0 and found.noise == pytest.approx(1.4826)


def test_the_rate_of_a_load_counts_whole_answers_over_time() -> None:
    asked = EvalOptions(dataset_limit=5, grid=grid_of({"buffer_size": [1, 2]}))
    items = items_of(asked, read_documents(asked))
    mine = [item for item in items if dict(item.options)["buffer_size"] == 1]
    ticks = count()
    found = measured(engine(), mine, 3, iter(range(1000)), lambda: next(ticks))  # a clock that is read three times
    outputs = LLM("tiny-bd", buffer_size=1).generate(
        [str(item.prompt) for item in mine], SamplingParams(max_tokens=64), progress=False
    )
    least, most = (bound(len(output.token_ids) for output in outputs) for bound in (min, max))
    assert max(LEAST, ROUNDS * 3) * least <= found <= (max(LEAST, ROUNDS * 3) + 3) * most
    groups = {item.options: [each for each in items if each.options == item.options] for item in items}
    shown: list[int] = []
    each = rates(engine(), groups, [2, 5], 3, shown.append)
    assert shown == list(range(1, 13)) and [len(one.each) for one in each] == [3] * 4
    assert [(one.live, dict(one.options)["buffer_size"]) for one in each] == [(2, 1), (2, 2), (5, 1), (5, 2)]
