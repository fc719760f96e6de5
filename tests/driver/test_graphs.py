"""What is captured as a graph, run without one: padded to a bucket, with kernels, it answers what the plan's own sizes do."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from naming import Loyal
from random_gemmas import BOUND, CANVAS, CONFIDENCE, STEPS, write_gemma
from triton_interpreter import needs_interpreter

from dlstep.core import Config, Request, SamplingParams, Strategy, add, commit, init, schedule
from dlstep.driver import TorchDriver, graphs
from dlstep.driver.arena import Arena
from dlstep.driver.graphs import Bucket, PaddedExecutor, bucket_of, fill, room_for, rounded
from dlstep.driver.lowering import Gathered, gather
from dlstep.models import Checkpoint, load_checkpoint
from dlstep.models.networks import PagedNetwork, paged
from dlstep.strategies.diffusion_gemma import DiffusionGemma
from dlstep.strategies.dmax import DMax
from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.strategies.multi_bd import MultiBD
from dlstep.strategies.multi_bd_edit import MultiBDEdit


@given(st.integers(1, 10_000))
def test_little_is_too_much(count: int) -> None:
    assert count <= rounded(count) <= max(count + 15, count + count / 32)
    assert rounded(rounded(count)) == rounded(count)


def padded(checkpoint: Checkpoint, config: Config, *, counted: bool) -> TorchDriver:
    """A driver that runs what graphs would be captured of."""
    driver = TorchDriver(checkpoint, config)
    main, network = driver._histories.main, paged(checkpoint.network, config.spec)
    network.draws_itself = counted
    main.executor = PaddedExecutor(network, main.memory, driver._target, captures=False)
    return driver


def roomier(gathered: Gathered, network: PagedNetwork) -> Bucket:
    """A bucket with more room than is needed."""
    least, more_rows = bucket_of(gathered, network), network.canvas_length or 16
    more = {"rows": least.rows + more_rows, "wanted": least.wanted + more_rows}
    return replace(least, spans=least.spans + 1, pages=least.pages * 2, soft=least.soft and least.soft + 16, **more)


PADDED = [
    ("plain", MultiBD(4, 2), 0.8),
    ("plain", MultiBD(4, 2, rule=Loyal(0.03)), 0.8),
    ("plain", DMax(4, 2, accept_threshold=0.2), 0.0),
    ("plain", DMax(4, 2, accept_threshold=0.2, token_merge_mode="iter_smooth_topk", token_merge_top_k=3), 0.0),
    ("sliding", MultiBDEdit(4, 2, max_post_edit_steps=0, penalty_lambda=1.0), 0.0),
    ("shifted", FastDLLMV2(2, 2), 0.0),
    ("gemma", DiffusionGemma(CANVAS, STEPS, BOUND, confidence_threshold=CONFIDENCE), 0.0),
]
# The least room is tried of the first by `make test`, of all by `make stress`.
ROOMS = [(case, "roomier", ()) for case in PADDED] + [(case, "least", pytest.mark.stress) for case in PADDED[1:]]
ROOMS.append((PADDED[0], "least", ()))


@needs_interpreter
@pytest.mark.parametrize(
    ("kind", "strategy", "temperature", "room"), [pytest.param(*case, room, marks=marks) for case, room, marks in ROOMS]
)
def test_padding_changes_no_answer(
    kind: str,
    strategy: Strategy,
    temperature: float,
    room: str,
    checkpoints: dict[str, Checkpoint],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = load_checkpoint(write_gemma(tmp_path, settles=True)) if kind == "gemma" else checkpoints[kind]
    config = Config(checkpoint.spec, page_size=4, num_pages=60, max_model_len=48, max_num_batched_tokens=64, max_num_reqs=3)
    met: list[Bucket] = []

    def chosen(gathered: Gathered, network: PagedNetwork) -> Bucket:
        met.append(roomier(gathered, network) if room == "roomier" else bucket_of(gathered, network))
        return met[-1]

    monkeypatch.setattr(graphs, "bucket_of", chosen)
    answers = []
    for driver in (TorchDriver(checkpoint, config), padded(checkpoint, config, counted=room == "roomier")):
        state = init(config, strategy)
        for number, length in enumerate((3, 5)):
            params = SamplingParams(max_tokens=2 + number, temperature=temperature, seed=number)
            state = add(state, Request(number, tuple(range(10, 10 + length)), params))
        while not state.done:
            state = commit(state, driver.run(schedule(state)))
        answers.append([state.finished[number].answer for number in range(2)])
    assert answers[0] == answers[1]
    assert len(met) > 1
    assert all(bucket.soft for bucket in met[1:]) == (kind == "plain" and isinstance(strategy, DMax))


@pytest.mark.parametrize("kind", ["plain", "sliding"])
def test_tiles_that_are_left_are_those_that_would_be_made(kind: str, checkpoints: dict[str, Checkpoint]) -> None:
    checkpoint = checkpoints[kind]
    config = Config(checkpoint.spec, page_size=4, num_pages=60, max_model_len=48, max_num_batched_tokens=64, max_num_reqs=3)
    driver = TorchDriver(checkpoint, config)
    target = driver._target
    state = init(config, MultiBD(4, 2))
    for number, length in enumerate((3, 6, 5)):
        state = add(state, Request(number, tuple(range(10, 10 + length)), SamplingParams(max_tokens=9 + 4 * number)))
    kept: dict[Bucket, tuple[Arena, Gathered]] = {}
    left = 0
    while not state.done:
        plan = schedule(state)
        samples = driver.run(plan)
        if any(span.wanted for span in plan.spans):
            gathered = gather(plan, driver._now.tables, target)
            bucket = bucket_of(gathered, driver.network)
            fresh = room_for(bucket, gathered, target)
            fill(fresh, bucket, gathered, target)
            arena, before = kept.get(bucket, (room_for(bucket, gathered, target), None))
            fill(arena, bucket, gathered, target, before and before.spans)
            assert all((arena.hosts[name] == fresh.hosts[name]).all() for name in fresh.hosts)
            left += before is not None and all(
                np.array_equal(before.spans[window].until, each.until) for window, each in gathered.spans.items()
            )
            kept[bucket] = arena, gathered
        state = commit(state, samples)
    assert left > 2
