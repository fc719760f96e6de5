"""DiffusionGemma on the torch driver: company, pressure and a lost device change nothing, and what the rows of a canvas see."""

from dataclasses import replace

import pytest
import torch

from dlstep.core import (
    Config,
    Request,
    RequestFault,
    Samples,
    SamplingParams,
    commit,
    rebuild,
    schedule,
)
from dlstep.driver import TorchDriver
from dlstep.driver.lowering import lower
from dlstep.models import load_checkpoint
from dlstep.strategies.diffusion_gemma import DiffusionGemma

from ...helpers.decoding import with_requests
from ...reference.gemma_recipe import CANVAS, WINDOW, write_preset

GEMMA = DiffusionGemma(CANVAS, 12, 0.5, confidence_threshold=0.3)
ROOMY = {"page_size": 8, "num_pages": 96, "max_model_len": 96, "max_num_batched_tokens": 512, "max_num_reqs": 8}
PRESETS = ("converging", "chaotic")
PROMPT = tuple(range(20, 41))


@pytest.fixture(scope="session")
def gemmas(tmp_path_factory):
    """In double precision, where rounding decides nothing."""
    folders = {preset: write_preset(preset, tmp_path_factory.mktemp(preset)) for preset in PRESETS}
    found = {preset: load_checkpoint(folder, dtype=torch.float64) for preset, folder in folders.items()}
    for checkpoint in found.values():
        checkpoint.network.set_experts_implementation("eager")  # the only one in double precision
    return found


def requests():
    """Prompts that share beginnings, of several canvases each."""
    base = tuple(range(3, 24))
    prompts = (base, (*base[:9], 50, 51), base[:9], (40, 41), (*base[:17], 9))
    return tuple(
        Request(number, prompt, SamplingParams(max_tokens=9 + 5 * number, seed=number)) for number, prompt in enumerate(prompts)
    )


def decode(state, driver):
    """Decode all requests, with plans of up to two forward passes or of none. Ranks agree once on each."""
    plans = []
    agreed = []
    while not state.done:
        plans.append(plan := schedule(state))
        samples = driver.start(plan, 0, lambda plan=plan: agreed.append(plan.step)).wait()
        assert samples.cache_digest == Samples(plan, samples.spans).cache_digest
        state = commit(state, samples)
    driver.start(schedule(state), 0, lambda: agreed.append(state.step)).wait()  # it feeds nothing
    assert agreed == [*[plan.step for plan in plans], state.step]
    return state, plans


def answers(state):
    return {number: (sequence.answer, sequence.finish, sequence.steps) for number, sequence in state.finished.items()}


@pytest.mark.full
@pytest.mark.parametrize("preset", ["converging", "chaotic"])
def test_pressure_and_company_change_no_answer(preset, gemmas):
    checkpoint = gemmas[preset]
    alone = {}
    config = Config(checkpoint.spec, **ROOMY, enable_prefix_caching=False)
    for request in requests():
        alone |= answers(decode(with_requests(config, GEMMA, [request]), TorchDriver(checkpoint, config))[0])
    modes = set()
    preemptions = shared = 0
    for page_size, pages, rows in ((3, 26, 20), (8, 12, 60)):
        limits = {"page_size": page_size, "num_pages": pages, "max_num_batched_tokens": rows, "max_model_len": 64}
        config = Config(checkpoint.spec, **(ROOMY | limits))
        state, plans = decode(with_requests(config, GEMMA, requests()), TorchDriver(checkpoint, config))
        assert answers(state) == alone
        modes |= {frozenset(span.rows.mode for span in plan.spans) for plan in plans}
        preemptions += sum(len(plan.preemptions) for plan in plans)
        shared += sum(len(admission.shared) for plan in plans for admission in plan.admissions)
    assert frozenset({"encode", "denoise"}) in modes and preemptions and shared


def test_a_rebuilt_state_answers_as_it_would_have(gemmas):
    config = Config(gemmas["chaotic"].spec, **ROOMY)
    state = with_requests(config, GEMMA, requests())
    undisturbed, _ = decode(state, TorchDriver(gemmas["chaotic"], config))
    driver = TorchDriver(gemmas["chaotic"], config)
    for _ in range(9):
        state = commit(state, driver.run(schedule(state)))
    state, _ = decode(rebuild(state), driver)
    assert answers(state) == answers(undisturbed)


def second_plan(driver, config, strategy, prompt):
    """The plan after the prompt was encoded."""
    state = with_requests(config, strategy, [Request(0, prompt, SamplingParams(max_tokens=CANVAS))])
    return schedule(commit(state, driver.run(schedule(state))))


def test_the_window_is_that_of_the_whole_canvas(gemmas):
    """Sliding layers see the same of the prompt in all rows, and it ends `WINDOW - 1` tokens before the canvas."""
    config = Config(gemmas["chaotic"].spec, **ROOMY)
    driver = TorchDriver(gemmas["chaotic"], config)
    plan = second_plan(driver, config, GEMMA, PROMPT)
    driver.apply_ownership(plan)
    (gathered,) = driver.gather(plan)
    batch = lower(gathered, driver._target)
    assert batch.carry is not None
    (layout,) = [layout for (window, _), layout in batch.layouts.items() if window == WINDOW]
    (alike,) = layout.batches
    seen = alike.bias[0, 0] == 0
    assert seen.shape == (CANVAS, len(PROMPT) + CANVAS)
    assert seen.sum(-1).tolist() == [WINDOW - 1 + CANVAS] * CANVAS
    assert seen[:, -(WINDOW - 1 + CANVAS) :].all()


def test_a_canvas_of_another_length_ends_its_request(gemmas):
    gemma, strategy = gemmas["converging"], replace(GEMMA, canvas_length=CANVAS // 2)
    config = Config(gemma.spec, **ROOMY)
    with pytest.raises(RequestFault, match=rf"{CANVAS // 2} tokens.*whole canvases of {CANVAS} sampled positions"):
        second_plan(TorchDriver(gemma, config), config, strategy, (5,))
