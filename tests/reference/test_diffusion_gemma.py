"""DiffusionGemma: the loop against transformers' own, and the engine against the loop."""

from dataclasses import asdict, replace
from functools import cache
from random import Random

import pytest
import torch

from dlstep import SamplingParams, SpanSamples, Spec, strategies
from dlstep.driver import TorchDriver
from dlstep.models import load_checkpoint

from ..helpers.decoding import by_driver, by_spans, decoded_alone, room_for_one
from .counted_draws import CountedDraws
from .diffusion_gemma import Asked, Gaps, GeneratorDraws, Transformers, answer_of, replay
from .gemma_recipe import CANVAS, VOCABULARY, Settings, generate, make_model, write_folder

PRESETS = ("converging", "chaotic")


@cache
def model_of(preset):
    """The network of a preset, in double precision so that rounding flips nothing."""
    return make_model(preset)


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.stress) for seed in (0, 3, 4))])
@pytest.mark.parametrize("preset", PRESETS)
def test_loop_and_strategy_generate_what_transformers_does(preset, seed):
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
        config, run = by_network(network, VOCABULARY, asked, draws)
        assert engine_answer(config, prompt, CANVAS, asked, run) == answer_of(expected, asked)


class Scripted:
    """A network without weights: logits are a function of the position, the canvas and a bit of what was predicted before."""

    def __init__(self, seed, vocabulary, calm):
        generator = torch.Generator().manual_seed(seed)
        self.own = torch.randn(64, vocabulary, generator=generator) * 2
        self.near = torch.randn(vocabulary, vocabulary, generator=generator)
        self.calm = calm

    def logits(self, final, canvas, before):
        """Peaks that grow with `calm` where tokens stay the same."""
        length = len(final)
        rows = self.own[length : length + len(canvas)] + self.near[canvas] + self.near[canvas.roll(1)] + self.near[final[-1]]
        return rows if before is None else rows + self.calm * torch.tanh(before)


class Device:
    """Answers the plans of the engine with a network and draws of the loops; keeps the scores of the last forward."""

    def __init__(self, network, draws):
        self.network, self.draws = network, draws
        self.held = None

    @torch.inference_mode()
    def samples(self, state, _, span):
        """The network's answer for a canvas."""
        assert span.rows.mode == "denoise" and span.wanted.sampled == tuple(range(span.rows.start, span.rows.end))
        sequence = state.find(span.who.id)
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


def engine_answer(config, prompt, count, asked, run, seed=0, **brought):
    """The answer of the engine's strategy."""
    own = {name: value for name, value in asdict(asked).items() if name not in ("max_new_tokens", "eos_ids")}
    params = SamplingParams(max_tokens=asked.max_new_tokens, seed=seed, **brought)
    strategy = strategies.load("diffusion_gemma")(canvas_length=count, **own)
    return list(decoded_alone(config, strategy, prompt, params, run).answer)


def by_network(network, vocabulary, asked, draws):
    """A configuration for the network, and what answers the plans."""
    return room_for_one(Spec(None, asked.eos_ids, vocabulary)), by_spans(Device(network, draws).samples)


@pytest.mark.parametrize("cases, brings", [(60, False), (150, True), pytest.param(240, False, marks=pytest.mark.stress)])
def test_the_strategy_unmasks_as_the_loop_does(cases, brings, report):
    """Also if requests bring pins and the tokens that canvases open with."""
    random = Random(3)
    compared = close = early = pinned = 0
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
        length, limit = len(prompt), len(prompt) + asked.max_new_tokens
        share = random.choice((0.0, 0.3, 0.7, 1.0)) if brings else 0.0
        pins = {place: random.randrange(vocabulary) for place in range(length, limit) if random.random() < share}
        opening = [random.randrange(vocabulary) for _ in range(random.choice((0, count, asked.max_new_tokens)) * brings)]
        network, gaps = Scripted(seed, vocabulary, random.choice((0.0, 2.0, 6.0))), Gaps()
        brought = Asked(pins, dict(enumerate(opening, length)))
        tokens = replay(network, prompt, count, asked, CountedDraws(seed, vocabulary, gaps), gaps, brought)
        if gaps.smallest < 1e-6:
            close += 1
            continue
        config, run = by_network(network, vocabulary, asked, CountedDraws(seed, vocabulary, Gaps()))
        offsets = {place - length: token for place, token in pins.items()}
        answer = engine_answer(config, prompt, count, asked, run, seed, pinned=offsets, canvas=opening)
        assert answer == answer_of(tokens, asked), seed
        compared += 1
        early += len(answer) < asked.max_new_tokens
        pinned += bool(pins)
    report(f"diffusion_gemma, brings {brings}: {compared} answers compared, {early} stopped early; {close} too close to call")
    assert compared > (2 * cases // 3 if brings else 5 * cases // 6) and early > cases // 12 and pinned >= cases // 3 * brings


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("cases", [8, pytest.param(24, marks=pytest.mark.stress)])
def test_the_engine_answers_as_the_loop_does(cases, preset, tmp_path, report):
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
        config = room_for_one(replace(checkpoint.spec, eos_ids=asked.eos_ids))
        answer = engine_answer(config, prompt, CANVAS, asked, by_driver(TorchDriver(checkpoint, config)), seed)
        assert answer == answer_of(tokens, asked), (seed, gaps.smallest)
        compared += 1
    report(f"diffusion_gemma, {preset}: {compared} answers compared; {close} too close to call")
    assert compared > 5 * cases // 8
