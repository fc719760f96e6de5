"""The attention and store kernels on a CUDA device, against their twins: what the interpreter shows, and larger shapes."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep_kernels import store_kv as store_kv_twin
from dlstep_kernels.quantization import FP8

from ..helpers.attention_checks import Problem, assert_near, check_store, expected, inputs_of, problems

pytestmark = pytest.mark.gpu
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
# Spans of decode steps at long context, of prefill, and of both.
DECODE = tuple((start, 32, start + 32, 0, 32) for start in (4064, 1000, 31, 2048))
PREFILL = ((0, 700, 700, 0, 32), (512, 300, 812, 100, 7))
MIXED = (*DECODE, *PREFILL, (3000, 1, 3001, 0, 1))


def check(problem, parts=None):
    """Attend on the device, and compare."""
    from dlstep_kernels.gpu.attention import tiled_attention

    inputs = inputs_of(problem, "cuda")
    scale = problem.head_dim**-0.5
    answer = tiled_attention(inputs.queries, inputs.key_pages, inputs.value_pages, inputs.tiles, scale=scale, parts=parts)
    assert_near(answer, expected(inputs, scale))


# Every example is compiled anew: it has sizes of its own.
@settings(max_examples=12)
@given(problem=problems(head_dims=(64, 80), reach=400, rows=70, spans=5), parts=st.sampled_from((None, 1, 3)))
def test_equals_the_twin(problem, parts):
    check(problem, parts)


@pytest.mark.parametrize("window, dtype", [(None, BF16), (1024, BF16), (None, FP16), (None, FP32)], ids=str)
@pytest.mark.parametrize("spans", [DECODE, PREFILL, MIXED], ids=["decode", "prefill", "mixed"])
def test_contexts_of_models(spans, dtype, window):
    for stored in (None, FP8):
        check(Problem(spans, 8, 4, 128, 32, window, dtype, 0, True, 1, stored))


@pytest.mark.parametrize("group", [1, 2, 3, 5, 6, 7, 8, 16])
def test_groups(group):
    check(Problem(MIXED, 2, group, 128, 16, None, BF16, 1, False, group))


@pytest.mark.parametrize(
    "head_dim, dtype, window",
    [
        *((head_dim, BF16, None) for head_dim in (16, 32, 64, 80, 96, 112, 256, 512)),
        *((head_dim, FP32, None) for head_dim in (16, 80, 256)),
        *((head_dim, FP16, 256) for head_dim in (96, 256)),
        (512, BF16, 256),
    ],
    ids=str,
)
def test_head_dims(head_dim, dtype, window):
    check(Problem(MIXED, 2, 4, head_dim, 32, window, dtype, 0, False, head_dim))


def test_the_bits_do_not_depend_on_what_else_is_in_the_bucket():
    """A sequence alone in a bucket of eight reads what it reads among seven others."""
    from dlstep_kernels.gpu.attention import tiled_attention

    inputs = inputs_of(Problem(DECODE * 2, 8, 4, 128, 32, None, BF16, 0, True, 3), "cuda")
    arrays = (inputs.queries, inputs.key_pages, inputs.value_pages)
    together = tiled_attention(*arrays, inputs.tiles, scale=0.1)
    inputs.tiles.counts[1:] = 0
    alone = tiled_attention(*arrays, inputs.tiles, scale=0.1)
    rows = int(inputs.tiles.counts[0])
    assert torch.equal(together[:rows], alone[:rows])


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32], ids=str)
@pytest.mark.parametrize("kv_heads, head_dim", [(8, 128), (2, 512), (3, 80)])
def test_stores_what_the_twin_stores(kv_heads, head_dim, dtype):
    from dlstep_kernels.gpu.attention import store_kv

    slots = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:300].cuda()
    slots[::7] = -1
    for stored in (None, FP8):
        check_store(store_kv, store_kv_twin.twin, slots, 1000, kv_heads, head_dim, dtype, stored=stored)
