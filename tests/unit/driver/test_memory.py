"""How many pages there is memory for."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep import LLM
from dlstep.core import Config, Spec
from dlstep.driver import TorchDriver
from dlstep.driver.memory import largest_forwards, pages_for, room_left, room_on_device
from dlstep.models import load_checkpoint
from dlstep.models.shapes import GIB, kv_bytes_per_token, kv_shapes
from dlstep.strategies.d2f import D2F
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.strategies.multi_bd import MultiBD
from dlstep_kernels.quantization import FP8


@pytest.mark.parametrize("kind, kv_dtype", [("plain", torch.float32), ("sliding", torch.float32), ("plain", FP8)])
def test_pages_take_what_was_allowed_and_no_more(kind, kv_dtype, checkpoints):
    checkpoint = replace(checkpoints[kind], kv_dtype=kv_dtype)
    shapes = kv_shapes(checkpoint.network.config)
    per_position = kv_bytes_per_token(shapes, kv_dtype)
    assert per_position == sum(2 * (1 if kv_dtype == FP8 else 4) * shape.kv_heads * shape.head_dim for shape in shapes)
    config = Config(checkpoint.spec, page_size=4, max_model_len=64, max_num_reqs=1000)
    gib = 1000 * 4 * per_position / GIB
    pages = pages_for(checkpoint, config, MultiBD(4, 2), gib=gib, share=0.9)
    assert 999 <= pages <= 1000, "a page more or less by rounding"
    driver = TorchDriver(checkpoint, replace(config, num_pages=pages))
    assert driver._caches.size == (4 * pages + 1) * per_position, "and a scratch slot"
    few = Config(checkpoint.spec, page_size=4, max_model_len=64, max_num_reqs=3)
    assert pages_for(checkpoint, few, MultiBD(4, 2), gib=1.0, share=0.9) == 3 * 64 // 4, "no more than can be held"


@pytest.mark.parametrize("total, requests", [(79.1, 64), (139.8, 150)])
def test_an_8b_network_leaves_room_for_many_requests(total, requests):
    """36 layers of 8 heads of 128 in bfloat16, 15.3 GiB of weights, 1 GiB taken by CUDA, 2 GiB for forward passes."""
    position, free = 2 * 2 * 36 * 8 * 128, total - 16.3
    room = room_left(int(total * GIB), int(free * GIB), 0.9, 2 * GIB, 32_768 * position)
    assert requests < room / position / 4_352 < 1.5 * requests, "of 4,096 tokens, with answers of 256"


@given(
    total=st.integers(1, 999),
    taken=st.integers(0, 999),
    share=st.floats(0.1, 1),
    forward=st.integers(0, 99),
    longest=st.integers(1, 99),
)
def test_a_session_has_room_beside_the_pages(total, taken, share, forward, longest):
    free = max(0, total - taken)
    room = room_left(total, free, share, forward, longest)
    left = free - forward - room
    assert left >= int((1 - share) * total)
    assert left >= longest or room <= longest, "unless there is room for one longest request only"


def test_what_does_not_fit_at_start_is_told_with_its_numbers(checkpoints, folders, monkeypatch):
    checkpoint = checkpoints["plain"]
    config = Config(checkpoint.spec, page_size=4, num_pages=60, max_model_len=48)

    def refuse(*args, **kwargs):
        raise torch.OutOfMemoryError("Tried to allocate much")

    with monkeypatch.context() as patched:
        patched.setattr("dlstep.models.networks.zeros", refuse)
        with pytest.raises(
            torch.OutOfMemoryError,
            match=r"num_pages=60 of page_size=4 take .* GiB, more than cpu has left: lower num_pages, .*allocate much",
        ):
            TorchDriver(checkpoint, config)
        with pytest.raises(ValueError, match=r"num_pages=60 of page_size=4 take .* lower num_pages"):
            LLM(str(folders["plain"]), page_size=4, num_pages=60, max_model_len=48)
    empty = torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *sizes, **named: (refuse if str(named.get("device")) == "cpu" else empty)(*sizes, **named)
    )
    with pytest.raises(ValueError, match=r"the weights in .* take .* GiB as torch.float32, more than cpu has left"):
        load_checkpoint(folders["plain"])


@settings(max_examples=60)
@given(
    strategy=st.sampled_from([MultiBD(4, 4), D2F(4, 2), FastDLLMV2(2, 4), MultiBD(8, 1)]),
    budget=st.integers(17, 200),
    length=st.integers(20, 150),
    page=st.integers(1, 16),
    most=st.integers(1, 12),
)
def test_the_largest_forward_passes_are_large(strategy, budget, length, page, most):
    spec = Spec(mask_id=7, eos_ids=(6,), vocab_size=8, head_shift=1 if isinstance(strategy, FastDLLMV2) else 0)
    config = Config(spec, page, 10_000, length, budget, most)
    (rows, sampling), pages = largest_forwards(config, strategy)
    atom = 16 if strategy == MultiBD(4, 4) else 8
    # A prompt that is one group is not cut to fit.
    group = length if isinstance(strategy, D2F) else atom
    assert sum(len(span.rows.tokens) for span in rows.spans) > min(budget, most * (length - atom - 1)) - group - 2
    assert len(sampling.spans) == min(most, budget // atom)
    for span in sampling.spans:
        assert len(span.rows.tokens) == atom
        assert len(span.wanted.sampled) == atom - spec.head_shift
    assert all(page < pages for plan in (rows, sampling) for grant in plan.grants for page in grant.pages)


@pytest.mark.parametrize("rows", [100, 40])
@pytest.mark.parametrize("strategy", [MultiBD(4, 2), FastDLLMV2(2, 2), DualCache(4)])
def test_the_largest_forward_passes_run(strategy, rows, checkpoints):
    checkpoint = checkpoints["shifted" if isinstance(strategy, FastDLLMV2) else "plain"]
    config = Config(checkpoint.spec, 4, 100, 64, max_num_batched_tokens=rows, max_num_reqs=9)
    plans, pages = largest_forwards(config, strategy)
    for plan in plans:
        samples = TorchDriver(checkpoint, replace(config, num_pages=pages)).run(plan)
        assert all(-1 not in rows.tokens for rows in samples.spans)


def test_memory_that_forward_passes_keep_is_not_given_to_pages(checkpoints, monkeypatch):
    """A device of 1,000 KiB: the first forward pass takes 100 KiB for good, in addition to the memory that torch counts."""
    checkpoint, kib = checkpoints["plain"], 1024
    config = Config(checkpoint.spec, page_size=4, max_model_len=64, max_num_reqs=1000)
    page_bytes = 4 * kv_bytes_per_token(kv_shapes(checkpoint.network.config), checkpoint.network.dtype)
    kept = 0
    run = TorchDriver.run

    def runs(driver, *args):
        nonlocal kept
        kept = 100 * kib
        return run(driver, *args)

    monkeypatch.setattr(TorchDriver, "run", runs)
    pages = largest_forwards(config, MultiBD(4, 2))[1]
    for name, value in {
        "empty_cache": lambda: None,
        "memory_allocated": lambda device: 200 * kib,
        "reset_peak_memory_stats": lambda device: None,
        "max_memory_allocated": lambda device: 250 * kib + pages * page_bytes,
        "mem_get_info": lambda device: (800 * kib - kept, 1000 * kib),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    for captures, forwards in ((False, 50), (True, 100)):
        room, _ = room_on_device(checkpoint, config, MultiBD(4, 2), 0.75, page_bytes, page_bytes, captures=captures)
        assert room == (800 - 100 - 250 - forwards) * kib
