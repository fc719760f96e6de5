"""What is captured as a graph, run without one: padded to a bucket, with kernels, it answers what the plan's own sizes do."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from triton_interpreter import needs_interpreter

from dlstep.core import Config, Request, SamplingParams, Strategy, add, commit, init, schedule
from dlstep.driver import TorchDriver
from dlstep.driver.graphs import batch_in, bucket_of, fill, room_for, rounded
from dlstep.driver.lowering import gather
from dlstep.models import Checkpoint
from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.strategies.multi_bd import MultiBD
from dlstep.strategies.multi_bd_edit import MultiBDEdit


@given(st.integers(1, 10_000))
def test_little_is_too_much(count: int) -> None:
    assert count <= rounded(count) <= max(count + 15, count + count / 8)
    assert rounded(rounded(count)) == rounded(count)


class Padded(TorchDriver):
    """A driver that runs what a graph would be captured of."""

    runs = 0

    @torch.inference_mode()
    def _replayed(self, plan):
        if not any(span.wanted for span in plan.spans):
            return None
        gathered = gather(plan, self._tables, self._target)
        bucket = bucket_of(gathered)
        other = replace(
            bucket, rows=bucket.rows + 16, wanted=bucket.wanted + 16, spans=bucket.spans + 1, pages=bucket.pages * 2
        )
        for roomier in (bucket, other):
            arena = room_for(roomier, gathered, self._target)
            fill(arena, roomier, gathered, self._target)
            answer = self._captured_step(batch_in(arena, roomier, self._target))
        self.runs += 1
        return answer[:, : len(gathered.arrays["wanted"])]


@needs_interpreter
@pytest.mark.parametrize(
    ("kind", "strategy", "temperature"),
    [
        ("plain", MultiBD(4, 2), 0.8),
        ("sliding", MultiBDEdit(4, 2, max_post_edit_steps=0, penalty_lambda=1.0), 0.0),
        ("shifted", FastDLLMV2(2, 2), 0.0),
    ],
)
def test_padding_changes_no_answer(
    kind: str, strategy: Strategy, temperature: float, checkpoints: dict[str, Checkpoint]
) -> None:
    checkpoint = checkpoints[kind]
    config = Config(checkpoint.spec, page_size=4, num_pages=60, max_model_len=48, max_num_batched_tokens=64, max_num_reqs=3)
    answers = []
    for driver in (TorchDriver(checkpoint, config), padded := Padded(checkpoint, config)):
        state = init(config, strategy)
        for number, length in enumerate((3, 5)):
            params = SamplingParams(max_tokens=2 + number, temperature=temperature, seed=number)
            state = add(state, Request(number, tuple(range(10, 10 + length)), params))
        while not state.done:
            state = commit(state, driver.run(schedule(state)))
        answers.append([state.finished[number].answer for number in range(2)])
    assert padded.runs > 1
    assert answers[0] == answers[1]
