"""Costs of a step, fitted to measured ones."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from dlstep.simulate.costs import Size, fitted


@given(st.lists(st.floats(1e-6, 1e-2), min_size=4, max_size=4), st.integers(0, 99))
def test_planted_costs_are_found(planted: list[float], seed: int) -> None:
    random = Random(seed)
    sizes = [Size(1.0, random.uniform(1, 500), random.uniform(1, 30), random.uniform(1, 9000)) for _ in range(40)]
    seconds = [sum(c * x for c, x in zip(planted, (1.0, s.rows, s.requests, s.context), strict=True)) for s in sizes]
    found = fitted(sizes, seconds)
    assert [found.forward, found.row, found.request, found.context] == pytest.approx(planted, rel=1e-3)


def test_no_cost_is_below_nothing() -> None:
    found = fitted([Size(1.0, 10.0), Size(1.0, 20.0), Size(1.0, 30.0)], [3.0, 2.0, 1.9], ("forward", "row"))
    assert found.row == 0 and 1.9 < found.forward < 3.0
