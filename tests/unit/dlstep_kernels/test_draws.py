"""The device's random numbers are the core's, bit for bit."""

import torch
from hypothesis import given, settings, strategies as st

from dlstep.core import draws
from dlstep_kernels import draw_keys, mix, uniform

WORDS = st.integers(0, 2**64 - 1)
COUNTERS = st.integers(0, 2**40)


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


@given(words=st.lists(WORDS, min_size=1, max_size=8))
def test_mix_is_the_same(words):
    answer = mix(torch.tensor([signed(word) for word in words]))
    assert answer.tolist() == [signed(draws.mix(word)) for word in words]


@settings(max_examples=50)
@given(rows=st.lists(st.tuples(WORDS, COUNTERS, COUNTERS), min_size=1, max_size=4))
def test_keys_and_numbers_are_the_same(rows):
    seeds, positions, numbers = (torch.tensor([signed(row[part]) for row in rows]) for part in range(3))
    expected = [draws.key(*row, "sample") for row in rows]
    keys = draw_keys(seeds, positions, numbers)
    assert keys.tolist() == [signed(key) for key in expected]
    found = uniform(keys, count=9)
    assert found.tolist() == [[draws.uniform(key, index) for index in range(9)] for key in expected]
    assert ((found > 0) & (found < 1)).all()
