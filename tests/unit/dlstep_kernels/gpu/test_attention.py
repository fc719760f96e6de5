"""The attention kernels in the interpreter, against their twin."""

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, strategies as st

from dlstep_kernels import store_kv as store_kv_twin
from dlstep_kernels.gpu.attention import MIN_PART, launch_parameters, parts_of, store_kv, tiled_attention
from dlstep_kernels.quantization import FP8
from dlstep_kernels.tiles import bucket_shape

from ....helpers.attention_checks import Problem, assert_near, check_store, expected, inputs_of, problems
from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = needs_interpreter
SMALL = {"block_m": 16, "block_n": 16, "num_warps": 4, "num_stages": 2, "occupancy": 1}
# Rows that see more than others, within and beyond a block of positions; the second has one that sees nothing.
STAIRS = Problem(((28, 7, 35, 0, 1),), 1, 2, 16, 4, None, torch.float32, 0, False, 1)
BLIND = Problem(((28, 7, 35, 0, 1),), 1, 2, 16, 4, None, torch.float32, 1, False, 1)


@up_to(25)
@example(problem=STAIRS, parts=1, block_m=16, block_n=16, shares=1)
@example(problem=BLIND, parts=2, block_m=16, block_n=16, shares=2)
@example(problem=STAIRS, parts=6, block_m=16, block_n=16, shares=1)
@example(problem=replace(STAIRS, page_size=64, window=9), parts=2, block_m=16, block_n=16, shares=1)
@example(problem=replace(STAIRS, page_size=8, window=9), parts=1, block_m=16, block_n=32, shares=2)
@example(problem=replace(STAIRS, page_size=3), parts=1, block_m=16, block_n=16, shares=1)
@given(
    problem=problems(head_dims=(16, 24, 32), reach=30, rows=7),
    parts=st.integers(1, 3),
    block_m=st.sampled_from((16, 64)),
    block_n=st.sampled_from((16, 32)),
    shares=st.sampled_from((1, 2)),
)
def test_equals_the_twin(problem, parts, block_m, block_n, shares):
    inputs = inputs_of(problem, "cpu")
    chosen = SMALL | {"block_m": block_m, "block_n": block_n, "shares": shares}
    parts_of_inputs = (inputs.queries, inputs.key_pages, inputs.value_pages, inputs.tiles)
    answer = tiled_attention(*parts_of_inputs, scale=0.3, chosen=chosen, parts=parts)
    assert_near(answer, expected(inputs, 0.3))


def test_too_many_parts_are_refused():
    inputs = inputs_of(STAIRS, "cpu")
    with pytest.raises(AssertionError, match="at most 32 parts are supported, got 33"):
        tiled_attention(inputs.queries, inputs.key_pages, inputs.value_pages, inputs.tiles, scale=0.3, chosen=SMALL, parts=33)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_few_tiles_are_divided_into_smaller_ones(dtype, monkeypatch):
    monkeypatch.setattr("dlstep_kernels.gpu.attention.architecture", lambda device: "sm_90")
    queries = torch.empty(1, 32, 128, dtype=dtype)
    usual, few = (launch_parameters(queries, 128, 4, kinds) for kinds in ((), ("few",)))
    assert few["block_m"] < usual["block_m"]
    assert few["min_part"] < MIN_PART
    assert launch_parameters(queries, 64, 2, ("few",)) == few
    windowed = launch_parameters(queries, 128, 4, ("windowed",))
    assert launch_parameters(queries, 128, 4, ("windowed", "many", "few")) == windowed


def test_programs_do_not_share_a_short_context_in_halves(monkeypatch):
    monkeypatch.setattr("dlstep_kernels.gpu.attention._processors", lambda device: 132)
    chosen = {"min_part": 128, "occupancy": 1}
    shapes = [bucket_shape(32, 1, 32, group=4, page_size=32, pages=pages, windowed=False) for pages in (32, 64)]
    device = torch.device("cpu")
    counts = [[parts_of(shape, programs, chosen, device) for programs in (8, 44, 64, 128)] for shape in shapes]
    assert counts == [[8, 3, 1, 1], [16, 3, 2, 1]]


@pytest.mark.parametrize("head_dim", [80, 96, 112, 128, 256, 512])
def test_head_dims(head_dim):
    problem = Problem(((20, 3, 23, 0, 2), (0, 2, 2, 0, 4)), 1, 7, head_dim, 8, None, torch.bfloat16, 0, False, head_dim)
    inputs = inputs_of(problem, "cpu")
    answer = tiled_attention(inputs.queries, inputs.key_pages, inputs.value_pages, inputs.tiles, scale=head_dim**-0.5)
    assert_near(answer, expected(inputs, head_dim**-0.5))


@up_to(20)
@given(
    seed=st.integers(0, 10**6),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from((16, 80)),
    dtype=st.sampled_from((torch.float32, torch.bfloat16)),
    slots=st.lists(st.integers(-1, 9), min_size=0, max_size=6, unique_by=lambda slot: slot if slot >= 0 else object()),
    stored=st.sampled_from((None, FP8)),
)
def test_the_store_kernel_stores_what_its_twin_stores(seed, kv_heads, head_dim, dtype, slots, stored):
    places = torch.tensor(slots, dtype=torch.int64)
    check_store(store_kv, store_kv_twin, places, 10, kv_heads, head_dim, dtype, seed, stored)
