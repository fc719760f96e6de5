"""Joining tuples and splitting arrays gives the same numbers as the conversions of numpy."""

import struct
from itertools import accumulate

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies as st

from dlstep.driver.lowering import joined, split

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
TUPLES = st.lists(st.lists(INTEGERS, max_size=9).map(tuple), max_size=5)
FLOATS = st.floats(width=32, allow_nan=False)


@given(TUPLES)
@example([])
@example([()])
def test_joined_numbers_are_in_order_and_writable(tuples):
    array = joined(tuples)
    assert array.dtype == np.int64 and array.tolist() == [number for each in tuples for number in each]
    assert split(array, [len(each) for each in tuples]) == tuples
    array += 0  # a read-only array raises
    torch.from_numpy(array)


@given(st.lists(st.lists(FLOATS, max_size=9).map(tuple), max_size=5), st.lists(FLOATS, max_size=3))
def test_split_floats_are_those_of_tolist(tuples, rest):
    numbers = [number for each in tuples for number in each]
    array = np.array(numbers + rest, dtype=np.float32)  # padding may follow
    counts = [len(each) for each in tuples]
    ends = list(accumulate(counts))
    wanted = [tuple(array[end - count : end].tolist()) for count, end in zip(counts, ends, strict=True)]
    assert repr(split(array, counts)) == repr(wanted)  # repr, because -0.0 equals 0.0
    every_second = np.array([number for number in numbers for _ in range(2)], dtype=np.float32)[::2]
    assert split(every_second, counts) == wanted


def test_a_number_beyond_64_bits_is_refused():
    with pytest.raises(struct.error):
        joined([(1 << 63,)])
