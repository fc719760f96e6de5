"""Rows of a comparison: their figures are those of separate runs."""

from dataclasses import replace

import numpy as np
import pytest

from dlstep import LLM, SamplingParams, tiny
from dlstep.evaluate import EvalOptions
from dlstep.evaluate.comparing import compared, curves_of
from dlstep.evaluate.entries import entries
from dlstep.evaluate.intervals import against_best
from dlstep.evaluate.metrics import Answers, Point, aup, wilson

from ...helpers.comparisons import row as made_row

TWENTY = tuple(value / 20 for value in range(20))


@pytest.mark.parametrize(("count", "values"), [(8, (0.3, 0.9)), pytest.param(200, TWENTY, marks=pytest.mark.stress)])
def test_a_comparison_gives_the_figures_of_separate_runs(count: int, values: tuple[float, ...]) -> None:
    found, left_out = entries(["threshold"], ["multi_bd"], grid={"accept_threshold": list(values)}, model="tiny-bd")
    rows = compared(found, EvalOptions(dataset_limit=count, problem_seed=3, max_tokens=48))
    assert not left_out and [row.options for row in rows] == [{"accept_threshold": value} for value in sorted(values)]
    problems = tiny.problems(count, 3)
    each: list[list[float]] = []
    for row in rows:
        alone = LLM("tiny-bd", **row.options)
        outputs = alone.generate([one.prompt for one in problems], SamplingParams(max_tokens=48), progress=False)
        each.append([float(tiny.score(one, output.text).answer) for one, output in zip(problems, outputs, strict=True)])
        tokens, forwards = sum(len(one.token_ids) for one in outputs), sum(one.nfe for one in outputs)
        figures = (row.problems, row.accuracy, row.tokens_per_forward, row.forwards_per_answer)
        assert figures == (count, sum(each[-1]) / count, tokens / forwards, forwards / count)
    best = max(map(sum, each)) / count
    assert {row.aup_best for row in rows} == {best}
    assert [row.to_best for row in rows] == pytest.approx([sum(right) / count - best for right in each])
    standings = against_best(np.array(each).T)
    found = [(row.to_best_low, row.to_best_high, row.as_right) for row in rows]
    assert found == [(standing.low, standing.high, standing.best) for standing in standings]
    assert [(row.accuracy_low, row.accuracy_high) for row in rows] == [wilson(sum(right), count) for right in each]
    shares = [row.seconds / row.forwards_per_answer for row in rows]
    assert shares == pytest.approx(shares[:1] * len(rows)) and shares[0] > 0, "wall time goes by forward passes"
    points = [Point((), Answers(1, 0, row.accuracy, 1, 0, 0)) for row in rows]
    points = [
        Point((), replace(point.sums, tokens=round(row.tokens_per_forward * 10**9), forwards=10**9))
        for point, row in zip(points, rows, strict=True)
    ]
    assert rows[0].aup == rows[1].aup == pytest.approx(aup(points, best))


def test_the_fastest_that_is_as_right_as_the_best() -> None:
    rows = [
        made_row(value=1, tokens_per_forward=9.0, as_right=False),
        made_row(value=2, tokens_per_forward=3.0),
        made_row(value=3, tokens_per_forward=4.0),
        made_row(value=4, tokens_per_forward=4.0, accuracy=0.4),
    ]
    (curve,) = curves_of(rows)["t"]
    assert curve.fastest is rows[2]
    (none,) = curves_of(rows[:1])["t"]
    assert none.fastest is None
