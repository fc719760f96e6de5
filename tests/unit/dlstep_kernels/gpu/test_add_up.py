"""Sums through memory that ranks have in common: here files that processes map, and the kernels in triton's interpreter."""

import time
from functools import reduce
from math import prod
from threading import Timer

import pytest
import torch

from dlstep_kernels import commons

from ....helpers.ranks_running import run_ranks
from ....helpers.triton_interpreter import needs_interpreter

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
# Whole tensors and parts, of few blocks and of many, in turns; 1024 bytes and less go whole.
SUMS = (
    (96, BF16), (768, BF16), (96, FP32), (192, BF16), (1536, FP32), (96, FP16), (480, FP16), (960, BF16), (960, BF16),
    (96, BF16), (192, FP32), (1536, BF16), (384, FP32), (384, FP32), (96, BF16),
)  # fmt: skip
SMALL = 1024  # bytes


def commons_in(folder, ranks):
    """Memory in common that lies in files, one of every rank."""
    commons.WHOLE = commons.SAVED = SMALL
    size, pad = ranks.size, commons.pad_bytes(ranks.size)
    whole = pad + commons.room_bytes(size)
    every = [torch.from_file(str(folder / f"{rank}"), shared=True, size=whole, dtype=torch.uint8) for rank in range(size)]
    ranks.gather_objects(None)
    signals = 8 * prod(commons.pad_shape(size))
    pads = tuple([one[:signals].view(torch.int64).view(commons.pad_shape(size)) for one in every])
    counts, gone = torch.zeros(commons.MOST + 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    return commons.Commons(ranks.rank, tuple([one[pad:] for one in every]), pads, counts, gone, 5)


def numbers(rank, seed, count, dtype):
    """The tensor of a rank."""
    return torch.randn(count, generator=torch.Generator().manual_seed(100 * seed + rank)).to(dtype)


def bits(tensor):
    """A copy of the memory: that of processes which end cannot be shared."""
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def sums(ranks, folder):
    """Sums of all sizes and dtypes, by ranks of which another one is late each time."""
    from dlstep_kernels.gpu.add_up import add_up

    common, found = commons_in(folder, ranks), []
    for seed, (count, dtype) in enumerate(SUMS):
        given = numbers(ranks.rank, seed, count, dtype)
        assert commons.suits(given, ranks.size)
        if seed % ranks.size == ranks.rank:
            time.sleep(0.02)
        found.append(bits(add_up(given, common)))
    assert set(common.counts[:-1].tolist()) == {len(found)}, "every program has counted every sum"
    ranks.gather_objects(None)
    return found


@pytest.mark.full
@needs_interpreter
@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_have_the_sum_in_the_order_of_ranks_rounded_once(size, tmp_path):
    """The same bits on each, whatever the sizes before were, and whoever came late."""
    found = run_ranks(size, sums, tmp_path)
    expected = []
    for seed, (count, dtype) in enumerate(SUMS):
        every = [numbers(rank, seed, count, dtype).float() for rank in range(size)]
        expected.append(bits(reduce(torch.add, every).to(dtype)))
    assert all(answers == expected for answers in found)


def alone(ranks, folder):
    """Rank 0 adds up while rank 1 does not, and is told to give up; then it adds up again. Seconds, and rank 1's signals."""
    from dlstep_kernels.gpu.add_up import add_up

    common = commons_in(folder, ranks)
    start, pads = time.monotonic(), []
    if not ranks.rank:
        Timer(0.3, common.gone.fill_, (1,)).start()
        for count in (96, 768, 96):
            add_up(numbers(0, 0, count, FP32), common)
            pads.append(common.pads[1].tolist())
    ranks.gather_objects(None)
    return time.monotonic() - start, pads


@pytest.mark.full
@needs_interpreter
def test_a_rank_that_gives_up_ends_and_tells_nothing_more(tmp_path):
    """Other ranks must not take its numbers for sums."""
    seconds, (first, second, third) = run_ranks(2, alone, tmp_path)[0]
    assert seconds > 0.3
    told = {one for program in first[0] for one in program}
    assert told == {0, 1}, "it had told that its numbers are there, and nothing else"
    assert first == second == third
