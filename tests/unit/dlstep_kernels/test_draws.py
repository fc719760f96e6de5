"""The random numbers of a device are those of the core, bit for bit."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep.core import draws
from dlstep_kernels import draw_keys, integers, mix, uniform
from dlstep_kernels.draws import philox

from ...reference.counted_draws import sample_numbers

WORDS = st.integers(0, 2**64 - 1)
COUNTERS = st.integers(0, 2**40)
ROWS = st.lists(st.tuples(WORDS, COUNTERS, COUNTERS), min_size=1, max_size=4)


def signed(value):
    return value - 2**64 if value >= 2**63 else value


@given(words=st.lists(WORDS, min_size=1, max_size=8))
def test_mix_is_the_same(words):
    answer = mix(torch.tensor([signed(word) for word in words]))
    assert answer.tolist() == [signed(draws.mix(word)) for word in words]


@pytest.mark.parametrize(
    "counter, key, expected",
    [
        ((0x00000000, 0x00000000), 0x00000000, (0xFF1DAE59, 0x6CD10DF2)),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_philox_computes_the_known_answers(counter, key, expected):
    """The vectors of `philox2x32 10` in Random123."""
    assert draws.philox(*counter, key) == expected
    assert tuple(map(int, philox(*map(torch.tensor, (*counter, key))))) == expected


@settings(max_examples=50)
@given(rows=ROWS, first=st.integers(0, 2**20), count=st.integers(1, 9))
def test_keys_and_numbers_are_the_same(rows, first, count):
    seeds, positions, numbers = (torch.tensor([signed(row[part]) for row in rows]) for part in range(3))
    expected = [draws.key(*row, "sample") for row in rows]
    keys = draw_keys(seeds, positions, numbers)
    assert keys.tolist() == [signed(key) for key in expected]
    found = uniform(keys, count=count, first=first)
    assert found.tolist() == [[draws.token_uniform(key, first + index) for index in range(count)] for key in expected]
    assert ((found > 0) & (found < 1)).all()
    assert torch.equal(uniform(keys, count=count), torch.stack([sample_numbers(*row, count) for row in rows]))


@settings(max_examples=50)
@given(rows=ROWS, bound=st.integers(1, 2**31))
def test_integers_are_the_same(rows, bound):
    keys = [draws.key(*row, "renoise") for row in rows]
    assert integers(torch.tensor(list(map(signed, keys))), bound).tolist() == [draws.integer(key, bound) for key in keys]
