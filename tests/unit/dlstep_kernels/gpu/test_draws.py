"""Kernels compute the twin's random numbers, bit for bit."""

import torch
import triton
import triton.language as tl
from hypothesis import given, strategies as st

from dlstep_kernels import uniform
from dlstep_kernels.gpu import draws as kernels
from dlstep_kernels.gpu.draws import complement, complements

from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = needs_interpreter

COUNT = 16


@triton.jit
def _store_numbers(keys, first, tiles, singles, COUNT: tl.constexpr, GROUP: tl.constexpr):
    key = tl.load(keys + tl.program_id(0)).to(tl.uint64, bitcast=True)
    place = tl.arange(0, COUNT)
    at = tl.program_id(0) * COUNT + place
    tl.store(tiles + at, 1.0 - complements(key, first, COUNT, GROUP))
    tl.store(singles + at, 1.0 - complement(key, first, place))


@up_to(30)
@given(
    keys=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    tile=st.integers(0, 2**20),
    group=st.sampled_from((4, 8)),
)
def test_kernels_compute_the_numbers_of_the_twin(keys, tile, group):
    streams, first = torch.tensor(keys), tile * COUNT
    found = [torch.empty(len(keys), COUNT) for _ in range(2)]
    _store_numbers[(len(keys),)](streams, first, *found, COUNT=COUNT, GROUP=group)
    expected = uniform(streams, count=COUNT, first=first)
    assert all(torch.equal(numbers, expected) for numbers in found)


@up_to(20)
@given(
    keys=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    count=st.integers(0, 50),
    first=st.integers(0, 2**20),
)
def test_the_kernel_of_uniform_numbers_equals_its_twin(keys, count, first):
    streams = torch.tensor(keys, dtype=torch.int64)
    assert torch.equal(kernels.uniform(streams, count=count, first=first), uniform.twin(streams, count=count, first=first))
