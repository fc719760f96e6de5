"""DiffusionGemma: the loop against transformers' own, and the engine against the loop."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion

from dlstep import (
    Config,
    Request,
    Samples,
    SamplingParams,
    SpanSamples,
    Spec,
    State,
    Strategy,
    add,
    commit,
    init,
    schedule,
    strategies,
)
from dlstep.core import NO_SAMPLES, Span
from dlstep.driver import TorchDriver
from dlstep.models import Checkpoint, load_checkpoint

from .counted_draws import CountedDraws
from .diffusion_gemma import Asked, Draws, Gaps, GeneratorDraws, Network, Transformers, answer_of, replay
from .gemma_recipe import CANVAS, VOCABULARY, Preset, Settings, generate, make_model, write_folder

PRESETS: tuple[Preset, ...] = ("converging", "chaotic")


@cache
def model_of(preset: Preset) -> DiffusionGemmaForBlockDiffusion:
    """The network of a preset, in double precision so that rounding flips nothing."""
    return make_model(preset)


@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.stress) for seed in (0, 4))])
@pytest.mark.parametrize("preset", PRESETS)
def test_loop_and_strategy_generate_what_transformers_does(preset: Preset, seed: int) -> None:
    random = Random(seed)
    prompt = [random.randrange(3, 61) for _ in range((1, 4, 6, 9, 13)[seed])]
    settings = Settings((17, 24, 8, 16, 9)[seed], stability_threshold=(1, 0, 1, 2, 1)[seed])
    plain = generate(model_of(preset), prompt, seed, settings)
    ending = replace(settings, eos_ids=(plain[random.randrange(len(plain))], 1))
    for asked in (settings, ending):
        draws = GeneratorDraws(torch.Generator().manual_seed(seed), VOCABULARY)
        expected = generate(model_of(preset), prompt, seed, asked)
        network = Transformers(model_of(preset))
        assert replay(network, prompt, CANVAS, asked, draws) == expected
        draws = GeneratorDraws(torch.Generator().manual_seed(seed), VOCABULARY)
        assert engine_answer(network, prompt, VOCABULARY, CANVAS, asked, draws) == answer_of(expected, asked)


class Scripted:
    """A network without weights: logits are a function of the position, the canvas and a bit of what was predicted before."""

    def __init__(self, seed: int, vocabulary: int, calm: float) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.own = torch.randn(64, vocabulary, generator=generator) * 2
        self.near = torch.randn(vocabulary, vocabulary, generator=generator)
        self.calm = calm

    def logits(self, final: Sequence[int], canvas: Tensor, before: Tensor | None) -> Tensor:
        """Peaks that grow with `calm` where tokens stay the same."""
        length = len(final)
        rows = self.own[length : length + len(canvas)] + self.near[canvas] + self.near[canvas.roll(1)] + self.near[final[-1]]
        return rows if before is None else rows + self.calm * torch.tanh(before)


class Device:
    """Answers the plans of the engine with a network and draws of the loops; keeps the scores of the last forward."""

    def __init__(self, network: Network, draws: Draws) -> None:
        self.network, self.draws = network, draws
        self.held: Tensor | None = None

    def run(self, state: State) -> Samples:
        """The samples of the next plan."""
        plan = schedule(state)
        return Samples(plan, tuple(self.rows(state, span) if span.wanted.sampled else NO_SAMPLES for span in plan.spans))

    def rows(self, state: State, span: Span) -> SpanSamples:
        """The network's answer for a canvas."""
        assert span.rows.mode == "denoise" and span.wanted.sampled == tuple(range(span.rows.start, span.rows.end))
        sequence = state.find(span.who.id)
        assert sequence is not None
        final = sequence.tokens(0, span.rows.start)
        canvas, before = torch.tensor(span.rows.tokens), self.held
        if span.rows.carry == "fresh":
            canvas, before = self.draws.opening(span.rows.start, len(canvas)), None
            # The core opens canvases by counting; a generator's are put in their place, before anything has seen them.
            brings = sequence.request.params.pinned or sequence.request.params.canvas
            assert isinstance(self.draws, GeneratorDraws) or brings or canvas.tolist() == list(span.rows.tokens)
            canvas = torch.tensor(span.rows.tokens) if brings else canvas
        scores = self.network.logits(final, canvas, before) / torch.tensor(span.who.params.temperature)
        self.held = scores
        tokens = self.draws.sample(scores, span.rows.start, span.wanted.draws[0])
        chances = scores.softmax(-1)
        return SpanSamples(
            tuple(tokens.tolist()),
            tuple(chances.gather(1, tokens[:, None])[:, 0].tolist()),
            entropies=tuple(torch.distributions.Categorical(logits=scores).entropy().tolist()),
            best_ids=tuple(scores.argmax(-1).tolist()),
            best_probabilities=tuple(chances.amax(-1).tolist()),
            noise=tuple(self.draws.noise(span.rows.start, len(tokens), span.wanted.draws[0]).tolist()),
        )


def strategy_of(count: int, asked: Settings) -> Strategy:
    """The engine's strategy."""
    options = {"canvas_length": count} | asdict(asked)
    del options["max_new_tokens"], options["eos_ids"]
    return strategies.load("diffusion_gemma")(**options)


def engine_answer(
    network: Network, prompt: list[int], vocabulary: int, count: int, asked: Settings, draws: Draws, **brought: Any
) -> list[int]:
    """The answer of the engine's strategy."""
    strategy = strategy_of(count, asked)
    config = Config(Spec(None, asked.eos_ids, vocabulary), page_size=4, num_pages=32, max_model_len=96, max_num_reqs=1)
    seed = draws.seed if isinstance(draws, CountedDraws) else 0
    params = SamplingParams(max_tokens=asked.max_new_tokens, seed=seed, **brought)
    state = add(init(config, strategy), Request(0, tuple(prompt), params))
    device = Device(network, draws)
    with torch.inference_mode():
        while not state.done:
            state = commit(state, device.run(state))
    assert state.finished[0].finish in ("stop", "length"), state.finished[0].error
    return list(state.finished[0].answer)


@pytest.mark.parametrize("cases", [80, pytest.param(240, marks=pytest.mark.stress)])
def test_the_strategy_unmasks_as_the_loop_does(cases: int, report: Callable[[str], None]) -> None:
    random = Random(3)
    compared = close = early = 0
    for seed in range(cases):
        vocabulary, count = random.choice((8, 20)), random.choice((2, 4, 5))
        asked = Settings(
            max_new_tokens=random.randrange(1, 3 * count + 1),
            max_denoising_steps=random.choice((1, 2, 5, 8)),
            entropy_bound=random.choice((0.05, 0.5, 2.0, 50.0)),
            stability_threshold=random.choice((0, 1, 2)),
            confidence_threshold=random.choice((0.05, 0.3, 1.0, 3.0)),
            eos_ids=random.choice(((), (0,), (0, 1))),
        )
        prompt = [random.randrange(2, vocabulary) for _ in range(random.randrange(1, 10))]
        network, gaps = Scripted(seed, vocabulary, random.choice((0.0, 2.0, 6.0))), Gaps()
        tokens = replay(network, prompt, count, asked, CountedDraws(seed, vocabulary, gaps), gaps)
        if gaps.smallest < 1e-6:
            close += 1
            continue
        draws = CountedDraws(seed, vocabulary, Gaps())
        assert engine_answer(network, prompt, vocabulary, count, asked, draws) == answer_of(tokens, asked), seed
        compared += 1
        early += len(answer_of(tokens, asked)) < asked.max_new_tokens
    report(f"diffusion_gemma: {compared} answers compared, {early} of them stopped early; {close} too close to call")
    assert compared > 5 * cases // 6 and early > cases // 12


def test_pins_and_canvases_are_treated_as_the_loop_does(report: Callable[[str], None]) -> None:
    random = Random(5)
    compared = close = pinned = 0
    for seed in range(300):
        vocabulary, count = random.choice((8, 20)), random.choice((2, 4, 5))
        asked = Settings(
            max_new_tokens=random.randrange(1, 3 * count + 1),
            max_denoising_steps=random.choice((1, 2, 5, 8)),
            entropy_bound=random.choice((0.05, 0.5, 2.0, 50.0)),
            stability_threshold=random.choice((0, 1, 2)),
            confidence_threshold=random.choice((0.05, 0.3, 1.0, 3.0)),
            eos_ids=random.choice(((), (0,))),
        )
        prompt = [random.randrange(2, vocabulary) for _ in range(random.randrange(1, 10))]
        length, limit = len(prompt), len(prompt) + asked.max_new_tokens
        chances = random.choice((0.0, 0.3, 0.7, 1.0))
        pins = {place: random.randrange(vocabulary) for place in range(length, limit) if random.random() < chances}
        given = [random.randrange(vocabulary) for _ in range(random.choice((0, count, asked.max_new_tokens)))]
        network, gaps = Scripted(seed, vocabulary, random.choice((0.0, 2.0, 6.0))), Gaps()
        brought = Asked(pins, dict(enumerate(given, length)))
        tokens = replay(network, prompt, count, asked, CountedDraws(seed, vocabulary, gaps), gaps, brought)
        if gaps.smallest < 1e-6:
            close += 1
            continue
        draws, offsets = CountedDraws(seed, vocabulary, Gaps()), {place - length: token for place, token in pins.items()}
        answer = engine_answer(network, prompt, vocabulary, count, asked, draws, pinned=offsets, canvas=given)
        assert answer == answer_of(tokens, asked), seed
        compared += 1
        pinned += bool(pins)
    report(f"diffusion_gemma, scripted, with pins and canvases: {compared} answers compared; {close} too close to call")
    assert compared > 200 and pinned > 100


def driver_answer(checkpoint: Checkpoint, prompt: list[int], asked: Settings, seed: int) -> list[int]:
    """The engine's answer on its own device."""
    config = Config(
        replace(checkpoint.spec, eos_ids=asked.eos_ids), page_size=4, num_pages=32, max_model_len=96, max_num_reqs=1
    )
    strategy = strategy_of(CANVAS, asked)
    params = SamplingParams(max_tokens=asked.max_new_tokens, seed=seed)
    state = add(init(config, strategy), Request(0, tuple(prompt), params))
    driver = TorchDriver(checkpoint, config)
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
    assert state.finished[0].finish in ("stop", "length"), state.finished[0].error
    return list(state.finished[0].answer)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("cases", [8, pytest.param(24, marks=pytest.mark.stress)])
def test_the_engine_answers_as_the_loop_does(cases: int, preset: Preset, tmp_path: Path, report: Callable[[str], None]) -> None:
    model = make_model(preset, torch.float32)
    checkpoint = load_checkpoint(write_folder(model, tmp_path), dtype=torch.float32)
    random = Random(11)
    compared = close = 0
    for seed in range(cases):
        prompt = [random.randrange(3, 61) for _ in range(random.choice((1, 4, 6, 7, 13)))]
        eos_ids = random.choice(((), (1,), tuple(range(10))))
        # What a chaotic network carries from forward to forward makes an error of rounding ten times as large each time.
        steps, bound = random.choice((1, 2) if preset == "chaotic" else (2, 4, 8)), random.choice((0.5, 4.0))
        asked = Settings(random.randrange(1, 20), steps, bound, confidence_threshold=random.choice((0.3, 2.0)), eos_ids=eos_ids)
        gaps = Gaps()
        tokens = replay(Transformers(model), prompt, CANVAS, asked, CountedDraws(seed, VOCABULARY, gaps), gaps)
        if gaps.smallest < 1e-3:
            close += 1
            continue
        assert driver_answer(checkpoint, prompt, asked, seed) == answer_of(tokens, asked), (seed, gaps.smallest)
        compared += 1
    report(f"diffusion_gemma, {preset}: {compared} answers compared; {close} too close to call")
    assert compared > 5 * cases // 8
