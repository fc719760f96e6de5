"""DiffusionGemma on the torch driver against `generate` of transformers, one forward pass at a time."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    LinearTemperatureScheduleLogitsProcessor,
)

from dlstep.core import (
    Config,
    DlstepError,
    Plan,
    Request,
    Samples,
    SamplingParams,
    SequenceState,
    State,
    WaitingQueue,
    add,
    commit,
    init,
    rebuild,
    schedule,
)
from dlstep.driver import TorchDriver
from dlstep.driver.lowering import lower
from dlstep.models import Checkpoint, load_checkpoint
from dlstep.models.networks import Answer, Batch, CanvasNetwork
from dlstep.strategies.diffusion_gemma import DiffusionGemma
from dlstep_kernels import Drawn

from .random_gemmas import BOUND, CANVAS, CONFIDENCE, STEPS, VOCABULARY, WINDOW, write_gemma

GEMMA = DiffusionGemma(CANVAS, STEPS, BOUND, confidence_threshold=CONFIDENCE)
ROOMY = {"page_size": 8, "num_pages": 96, "max_model_len": 96, "max_num_batched_tokens": 512, "max_num_reqs": 8}
PRESETS = {"settling": True, "restless": False}
PROMPTS = ((5, 9, 17, 33, 2, 60, 11, 12, 30), (7,), tuple(range(20, 41)))


@pytest.fixture(scope="session")
def gemma_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("gemmas")
    return {name: write_gemma(base / name, settles=settles) for name, settles in PRESETS.items()}


@pytest.fixture(scope="session")
def gemmas(gemma_folders: dict[str, Path]) -> dict[str, Checkpoint]:
    """In double precision, where rounding decides nothing."""
    found = {name: load_checkpoint(folder, dtype=torch.float64) for name, folder in gemma_folders.items()}
    for checkpoint in found.values():
        checkpoint.network.set_experts_implementation("eager")  # the only one in double precision
    return found


class TransformersDraws(CanvasNetwork):
    """The network with the random numbers of transformers: one generator, drawn from in the order of its `generate`."""

    def __init__(self, checkpoint: Checkpoint, seed: int) -> None:
        super().__init__(checkpoint.network, checkpoint.spec)
        self.generator = torch.Generator().manual_seed(seed)

    def ids(self) -> Tensor:
        return torch.randint(0, VOCABULARY, (1, CANVAS), generator=self.generator)[0]

    def sample(self, batch: Batch, answer: Answer) -> Drawn:
        assert isinstance(answer, Tensor) and batch.settings.temperatures is not None
        probabilities = torch.softmax(answer / batch.settings.temperatures[:, None], dim=-1, dtype=torch.float32)
        tokens = torch.multinomial(probabilities, 1, generator=self.generator)[:, 0]
        return replace(super().sample(batch, answer), tokens=tokens, noise=self.ids())

    def opened(self, state: State) -> State:
        """`state` with the canvas of its only request opened by the generator."""
        (sequence,) = (*state.running, *state.waiting)
        (canvas,) = sequence.window
        canvas = replace(canvas, tokens=tuple(self.ids().tolist()))
        opened = (sequence.with_window(sequence.past, (canvas,), sequence.final, sequence.settled),)
        return replace(state, running=opened) if state.running else replace(state, waiting=WaitingQueue().push_front(opened))


def decode_like_transformers(
    state: State, checkpoint: Checkpoint, config: Config, seed: int
) -> tuple[SequenceState, list[tuple[int, ...]]]:
    """The finished request, and the canvas of every forward pass that denoised."""
    network = TransformersDraws(checkpoint, seed)
    driver = TorchDriver(checkpoint, config, network=network)
    canvases: list[tuple[int, ...]] = []
    opened = 0
    while not state.done:
        (sequence,) = (*state.running, *state.waiting)
        if sequence.window[0].start > opened:
            opened, state = sequence.window[0].start, network.opened(state)
        plan = schedule(state)
        canvases += [span.rows.tokens for span in plan.spans if span.wanted.sampled]
        state = commit(state, driver.run(plan))
    return state.finished[0], canvases


@dataclass
class Generated:
    """All tokens that transformers generated after the prompt, and those that its decoder was fed."""

    tokens: list[int]
    canvases: list[tuple[int, ...]]


def generate(network: Any, prompt: tuple[int, ...], count: int, seed: int, eos: list[int] | None) -> Generated:
    canvases: list[tuple[int, ...]] = []

    def watch(_module: object, _given: object, named: dict[str, Any]) -> None:
        canvases.append(tuple(named["decoder_input_ids"][0].tolist()))

    handle = network.model.decoder.register_forward_pre_hook(watch, with_kwargs=True)
    network.generation_config.eos_token_id = eos
    torch.manual_seed(seed)
    output = network.generate(torch.tensor([prompt]), max_new_tokens=count)
    handle.remove()
    return Generated(output.sequences[0, len(prompt) :].tolist(), canvases)


def plain_network(folder: Path, dtype: torch.dtype) -> Any:
    network = DiffusionGemmaForBlockDiffusion.from_pretrained(folder, attn_implementation="sdpa", dtype=dtype).eval()
    network.set_experts_implementation("eager")
    return network


# In single precision the restless network is moved by rounding alone.
@pytest.mark.parametrize(
    ("preset", "dtype", "seeds"),
    [
        ("settling", torch.float64, 1),
        pytest.param("settling", torch.float64, 2, marks=pytest.mark.stress),
        pytest.param("restless", torch.float64, 1, marks=pytest.mark.full),
        ("settling", torch.float32, 1),
    ],
)
def test_every_canvas_is_the_one_that_transformers_denoises(
    preset: str, dtype: torch.dtype, seeds: int, gemma_folders: dict[str, Path]
) -> None:
    """Six runs for each seed: prompts shorter and longer than the window, whole and in pieces, with and
    without an end of sequence, and an answer that ends inside a canvas.
    """
    checkpoint = load_checkpoint(gemma_folders[preset], dtype=dtype)
    checkpoint.network.set_experts_implementation("eager")
    network = plain_network(gemma_folders[preset], dtype)
    runs = forwards = stops = 0
    for seed in range(seeds):
        for prompt in PROMPTS:
            theirs = generate(network, prompt, 3 * CANVAS, seed, None)
            # The second end of sequence is a token that such an answer holds.
            for eos in ([], [theirs.tokens[CANVAS + 3]]):
                count = 3 * CANVAS - (3 if eos else 0)
                if eos:
                    theirs = generate(network, prompt, count, seed, eos)
                spec = replace(checkpoint.spec, eos_ids=tuple(eos))
                config = Config(spec, **(ROOMY | {"page_size": 3 + seed, "max_num_batched_tokens": CANVAS + 2 * seed}))
                state = add(init(config, GEMMA), Request(0, prompt, SamplingParams(max_tokens=count)))
                sequence, canvases = decode_like_transformers(state, checkpoint, config, seed)
                assert canvases == theirs.canvases
                within = theirs.tokens[:count]
                expected = within[: within.index(eos[0])] if eos and eos[0] in within else within
                assert list(sequence.answer) == expected
                runs, forwards = runs + 1, forwards + len(canvases)
                stops += sequence.finish == "stop"
    assert (runs, stops) == (6 * seeds, 3 * seeds) and forwards > 100 * seeds


def requests() -> tuple[Request, ...]:
    """Prompts that share beginnings, of several canvases each."""
    base = tuple(range(3, 24))
    prompts = (base, (*base[:9], 50, 51), base[:9], (40, 41), (*base[:17], 9))
    return tuple(
        Request(number, prompt, SamplingParams(max_tokens=9 + 5 * number, seed=number)) for number, prompt in enumerate(prompts)
    )


def decode(state: State, driver: TorchDriver) -> tuple[State, list[Plan]]:
    """Decode all requests, with plans of up to two forward passes or of none. Ranks agree once on each."""
    plans: list[Plan] = []
    agreed: list[int] = []
    while not state.done:
        plans.append(plan := schedule(state))
        samples = driver.start(plan, lambda plan=plan: agreed.append(plan.step)).wait()
        assert samples.cache_digest == Samples(plan, samples.rows).cache_digest
        state = commit(state, samples)
    driver.start(schedule(state), lambda: agreed.append(state.step)).wait()  # it feeds nothing
    assert agreed == [*[plan.step for plan in plans], state.step]
    return state, plans


def answers(state: State) -> dict[int, tuple[tuple[int, ...], str | None, int]]:
    return {request.id: (s.answer, s.finish, s.steps) for request in requests() if (s := state.finished[request.id])}


@pytest.mark.parametrize("preset", ["settling", pytest.param("restless", marks=pytest.mark.full)])
def test_pressure_and_company_change_no_answer(preset: str, gemmas: dict[str, Checkpoint]) -> None:
    checkpoint = gemmas[preset]
    alone: dict[int, tuple[tuple[int, ...], str | None, int]] = {}
    for request in requests():
        config = Config(checkpoint.spec, **ROOMY, enable_prefix_caching=False)
        state, _ = decode(add(init(config, GEMMA), request), TorchDriver(checkpoint, config))
        sequence = state.finished[request.id]
        alone[request.id] = (sequence.answer, sequence.finish, sequence.steps)
    modes: set[frozenset[str]] = set()
    preemptions = shared = 0
    for page_size, pages, rows in ((3, 26, 20), (8, 12, 60)):
        limits = {"page_size": page_size, "num_pages": pages, "max_num_batched_tokens": rows, "max_model_len": 64}
        config = Config(checkpoint.spec, **(ROOMY | limits))
        state = init(config, GEMMA)
        for request in requests():
            state = add(state, request)
        state, plans = decode(state, TorchDriver(checkpoint, config))
        assert answers(state) == alone
        modes |= {frozenset(span.rows.mode for span in plan.spans) for plan in plans}
        preemptions += sum(len(plan.preemptions) for plan in plans)
        shared += sum(len(admission.shared) for plan in plans for admission in plan.admissions)
    assert frozenset({"encode", "denoise"}) in modes and preemptions and shared


def test_a_rebuilt_state_answers_as_it_would_have(gemmas: dict[str, Checkpoint]) -> None:
    config = Config(gemmas["restless"].spec, **ROOMY)
    state = init(config, GEMMA)
    for request in requests():
        state = add(state, request)
    undisturbed, _ = decode(state, TorchDriver(gemmas["restless"], config))
    driver = TorchDriver(gemmas["restless"], config)
    for _ in range(9):
        state = commit(state, driver.run(schedule(state)))
    state, _ = decode(rebuild(state), driver)
    assert answers(state) == answers(undisturbed)


def test_temperatures_are_those_of_transformers() -> None:
    scores = torch.linspace(-30.0, 30.0, 101)[None]
    for value in (GEMMA, DiffusionGemma(), DiffusionGemma(t_min=0.0, t_max=1.3, max_denoising_steps=7)):
        theirs = LinearTemperatureScheduleLogitsProcessor(value.t_min, value.t_max, value.max_denoising_steps)
        for remaining in range(1, value.max_denoising_steps + 1):
            ids = torch.zeros((1, 1), dtype=torch.int64)
            expected = theirs(ids, scores, cur_step=torch.tensor(remaining, dtype=torch.int32))  # pyright: ignore[reportArgumentType]
            ours = torch.tensor([value.temperature(remaining)])
            assert ours.item() == value.temperature(remaining)
            assert torch.equal(scores / ours, expected)


def test_the_window_is_that_of_the_whole_canvas(gemmas: dict[str, Checkpoint]) -> None:
    """Sliding layers see the same of the prompt in all rows, and it ends `WINDOW - 1` tokens before the canvas."""
    config = Config(gemmas["restless"].spec, **ROOMY)
    driver = TorchDriver(gemmas["restless"], config)
    state = add(init(config, GEMMA), Request(0, PROMPTS[2], SamplingParams(max_tokens=CANVAS)))
    state = commit(state, driver.run(schedule(state)))
    plan = schedule(state)
    driver.apply_ownership(plan)
    (gathered,) = driver.gather(plan)
    batch = lower(gathered, driver._target)
    assert batch.carry is not None
    (layout,) = [layout for (window, _), layout in batch.layouts.items() if window == WINDOW]
    (alike,) = layout.batches
    seen = alike.bias[0, 0] == 0
    assert seen.shape == (CANVAS, len(PROMPTS[2]) + CANVAS)
    assert seen.sum(-1).tolist() == [WINDOW - 1 + CANVAS] * CANVAS
    assert seen[:, -(WINDOW - 1 + CANVAS) :].all()


def test_a_network_without_canvases_refuses_them(gemmas: dict[str, Checkpoint], checkpoints: dict[str, Checkpoint]) -> None:
    spec = replace(checkpoints["plain"].spec, mask_id=None)
    config = Config(spec, **ROOMY)
    driver, state = TorchDriver(checkpoints["plain"], config), init(config, GEMMA)
    state = add(state, Request(0, (5,), SamplingParams(max_tokens=CANVAS)))
    state = commit(state, driver.run(schedule(state)))
    with pytest.raises(DlstepError, match="request 0: the network cannot denoise a canvas"):
        driver.run(schedule(state))
    config = Config(gemmas["settling"].spec, **ROOMY)
    driver, state = TorchDriver(gemmas["settling"], config), init(config, replace(GEMMA, canvas_length=CANVAS // 2))
    state = add(state, Request(0, (5,), SamplingParams(max_tokens=CANVAS)))
    state = commit(state, driver.run(schedule(state)))
    with pytest.raises(DlstepError, match=rf"whole canvases of {CANVAS} positions.*feeds {CANVAS // 2}"):
        driver.run(schedule(state))
