"""Loads of `dlstep tune`, and the table of a policy that it prints."""

from itertools import pairwise

import pytest
import yaml
from hypothesis import given, strategies as st

from dlstep import SamplingParams
from dlstep.bench.load import policy_rows
from dlstep.cli.tune_load import loads_of, table_text
from dlstep.engine.buffer_policy import policy_of

from ..bench.test_load import rate


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6, unique=True), st.data())
def test_a_table_gives_each_measured_load_what_was_chosen_for_it(loads: list[int], data: st.DataObject) -> None:
    loads = sorted(loads)
    sizes = [data.draw(st.integers(1, 3)) for _ in loads]
    rows = policy_rows({live: rate(size, live, 1.0) for live, size in zip(loads, sizes, strict=True)})
    policy = policy_of(yaml.safe_load(table_text(rows)))
    assert policy is not None

    def at(live: int) -> int:
        return dict(policy.applied(SamplingParams(), live).strategy_options)["buffer_size"]

    assert [at(live) for live in loads] == sizes
    assert len(rows) <= 1 + sum(one != other for one, other in pairwise(sizes))
    for live in range(1, 2 * loads[-1]):
        near = min(loads, key=lambda load: (max(load, live) / min(load, live), load))
        assert at(live) == sizes[loads.index(near)], live


@pytest.mark.parametrize(
    ("given_loads", "message"),
    [([], "above 0, got"), ([0, 1], "above 0, got"), ([1, 129], "129 requests are more than max_num_reqs=128")],
)
def test_a_load_that_cannot_be_is_told(given_loads: list[int], message: str) -> None:
    assert loads_of([8, 1, 8], 128) == [1, 8] and loads_of(4, 128) == [4]
    with pytest.raises(ValueError, match=message):
        loads_of(given_loads, 128)
