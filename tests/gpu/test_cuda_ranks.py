"""Groups of ranks on CUDA devices: they come, answer as one device does, and go in seconds, with their graphs."""

import os
import signal
import time
from threading import Timer

import pytest
import torch

from dlstep import LLM, SamplingParams, tiny
from dlstep.core import DlstepError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two CUDA devices are needed"),
]
PROMPTS = [problem.prompt for problem in tiny.problems(24, seed=9)]
LIMIT = SamplingParams(max_tokens=48)
SOON = 15.0  # seconds


def two_ranks(**options):
    return LLM(device="cuda", dtype="float32", max_num_reqs=10, tensor_parallel_size=2, **options)


@pytest.fixture(scope="module")
def expected():
    llm = LLM(device="cuda", dtype="float32", max_num_reqs=10, capture_graphs="lazy")
    return [each.token_ids for each in llm.generate(PROMPTS, LIMIT)]


def test_groups_with_graphs_follow_one_another(expected):
    """The second one has no memory in common with its ranks, and adds up by NCCL."""
    for when in ("start", "lazy"):
        llm = two_ranks(capture_graphs=when)
        for _ in range(2):
            assert [each.token_ids for each in llm.generate(PROMPTS, LIMIT)] == expected
        rank_zero = llm.engine.driver
        assert rank_zero._driver.graph_count
        del rank_zero
        start = time.monotonic()
        del llm
        assert time.monotonic() - start < SOON
        assert not torch.distributed.is_initialized()


def test_a_rank_that_is_killed_ends_a_call(expected):
    llm = two_ranks(capture_graphs="lazy")
    for _ in range(2):
        assert [each.token_ids for each in llm.generate(PROMPTS, LIMIT)] == expected
    rank_zero = llm.engine.driver
    pid, killed = rank_zero._group.pids[0], []

    def kill():
        os.kill(pid, signal.SIGKILL)
        killed.append(time.monotonic())

    Timer(0.3, kill).start()
    with pytest.raises(DlstepError, match="rank 1 of 2 was killed by SIGKILL"):
        llm.generate(PROMPTS * 200, LIMIT)
    del rank_zero, llm
    assert time.monotonic() - killed[0] < SOON
    assert not torch.distributed.is_initialized()
