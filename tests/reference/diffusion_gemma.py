"""DiffusionGemma: canvases of random tokens that are denoised as a whole, each after all that is final.

The network has the methods of `Transformers`, and the source of random numbers those of `GeneratorDraws`. With the numbers of
one generator, in the order in which transformers draws them, the answer is that of transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion, DynamicCache

from dlstep.models.transformers_internals import cache_argument

from .gemma_recipe import FULL, SLIDING, WINDOW, Settings


class Transformers:
    """The network of transformers, which encodes everything final anew for each canvas."""

    def __init__(self, model: DiffusionGemmaForBlockDiffusion) -> None:
        self.model = model
        self.encoded: tuple[list[int], DynamicCache] | None = None

    def encode(self, tokens: list[int]) -> DynamicCache:
        """Keys and values of `tokens`: each sees itself and those before it, in sliding layers only the last few."""
        positions = torch.arange(len(tokens))
        causal = positions[None, :] <= positions[:, None]
        near = causal & (positions[None, :] > positions[:, None] - WINDOW)
        cache = DynamicCache()
        self.model.model.encoder.language_model(
            input_ids=torch.tensor([tokens]),
            attention_mask={FULL: causal[None, None], SLIDING: near[None, None]},
            **{cache_argument(self.model): cache},
            position_ids=positions[None],
        )
        return cache

    def logits(self, final: Sequence[int], canvas: Tensor, before: Tensor | None) -> Tensor:
        """Logits of a canvas; each row attends to the canvas and the final tokens, in sliding layers only the last few.

        `before` are the scores of the previous forward pass, if any.
        """
        if self.encoded is None or self.encoded[0] != list(final):
            self.encoded = list(final), self.encode(list(final))
        length, count = len(final), len(canvas)
        seen = torch.ones(1, 1, count, length + count, dtype=torch.bool)
        near = seen.clone()
        near[..., : max(0, length - (WINDOW - 1))] = False
        dtype = self.model.model.decoder.embed_tokens.weight.dtype
        return self.model(
            decoder_input_ids=canvas[None],
            self_conditioning_logits=None if before is None else before[None].to(dtype),
            decoder_attention_mask={FULL: seen, SLIDING: near},
            decoder_position_ids=torch.arange(length, length + count)[None],
            **{cache_argument(self.model): self.encoded[1]},
        ).logits[0]


class GeneratorDraws:
    """The numbers of one generator, in the order in which transformers draws them.

    `start` is the first position of the canvas, `step` its forward pass, counted from 0.
    """

    def __init__(self, generator: torch.Generator, vocabulary: int) -> None:
        self.generator, self.vocabulary = generator, vocabulary

    def opening(self, start: int, count: int) -> Tensor:
        """The tokens that a canvas opens with."""
        del start
        return torch.randint(0, self.vocabulary, (1, count), generator=self.generator)[0]

    def sample(self, scores: Tensor, start: int, step: int) -> Tensor:
        """The token that arrives first when each arrives as fast as it is probable."""
        del start, step
        waits = torch.empty(scores.shape).exponential_(1, generator=self.generator)
        return (scores.softmax(-1, dtype=torch.float32) / waits).argmax(-1)

    def noise(self, start: int, count: int, step: int) -> Tensor:
        """The tokens of the positions that are not accepted."""
        del step
        return self.opening(start, count)


class Gaps:
    """The least distance of any decision so far to the opposite one."""

    def __init__(self) -> None:
        self.smallest = float("inf")

    def note(self, gap: Tensor | float) -> None:
        """Remember how far a decision was from the opposite one."""
        self.smallest = min(self.smallest, abs(float(gap)))

    def note_best(self, scores: Tensor) -> None:
        """Remember how far the largest of each row was from being another one."""
        best = scores.topk(2, -1).values
        self.note((best[..., 0] - best[..., 1]).min())


def accepted(entropies: Sequence[float], bound: float, gaps: Gaps) -> list[int]:
    """Positions that keep their sampled token: in order of entropy, while those before it sum to at most `bound`."""
    order = sorted(range(len(entropies)), key=lambda index: entropies[index])
    kept: list[int] = []
    spent = 0.0
    for index in order:
        gaps.note(spent - bound)
        if spent > bound:
            gaps.note(entropies[index] - entropies[kept[-1]])
            break
        kept.append(index)
        spent += entropies[index]
    return kept


@dataclass(frozen=True)
class Asked:
    """Tokens that a request brings, by position: those that are pinned, and those that a canvas opens with."""

    pins: Mapping[int, int] = field(default_factory=dict[int, int])
    opening: Mapping[int, int] = field(default_factory=dict[int, int])


NOTHING = Asked()


def denoise(
    network: Any, final: Sequence[int], count: int, draws: Any, settings: Settings, gaps: Gaps, asked: Asked = NOTHING
) -> list[int]:
    """A canvas of `count` positions after the tokens `final`: the most probable tokens of its last forward.

    Pinned positions hold their token in every forward; they are neither accepted nor renoised, and nothing is averaged over
    them.
    """
    start, steps, stability = len(final), settings.max_denoising_steps, settings.stability_threshold
    canvas, before = draws.opening(start, count), None
    pins = {position - start: token for position, token in asked.pins.items() if start <= position < start + count}
    free = [offset for offset in range(count) if offset not in pins]
    for position, token in asked.opening.items():
        if start <= position < start + count:
            canvas[position - start] = token
    for offset, token in pins.items():
        canvas[offset] = token
    history: list[list[int]] = []
    for step in range(steps):
        share = torch.tensor((steps - step) / steps)  # from 1 down, in single precision as all that follows
        scores = network.logits(final, canvas, before) / (settings.t_min + (settings.t_max - settings.t_min) * share)
        sampled = draws.sample(scores, start, step)
        noise = draws.noise(start, count, step)
        entropies = torch.distributions.Categorical(logits=scores).entropy()
        entropies = entropies[free]
        kept = [free[index] for index in accepted(entropies.tolist(), settings.entropy_bound, gaps)]
        canvas = noise.clone()
        canvas[kept] = sampled[kept]
        best = scores.argmax(-1)
        for offset, token in pins.items():
            canvas[offset] = best[offset] = token

        history.append(best.tolist())
        gaps.note_best(scores)
        gaps.note(entropies.mean() - settings.confidence_threshold)
        stable = len(history) > stability and all(other == history[-1] for other in history[-1 - stability :])
        if stable and entropies.mean() < settings.confidence_threshold:
            break
        before = scores
    return history[-1]


def replay(
    network: Any,
    prompt: Sequence[int],
    count: int,
    settings: Settings,
    draws: Any,
    gaps: Gaps | None = None,
    asked: Asked = NOTHING,
) -> list[int]:
    """The tokens after `prompt`, in whole canvases of `count` positions."""
    gaps = gaps or Gaps()
    tokens = list(prompt)
    with torch.inference_mode():
        while len(tokens) - len(prompt) < settings.max_new_tokens:
            end = min(len(tokens) + count, len(prompt) + settings.max_new_tokens)
            if all(position in asked.pins for position in range(len(tokens), end)):
                canvas = [asked.pins[position] for position in range(len(tokens), end)]  # nothing is left to denoise
            else:
                canvas = denoise(network, tokens, count, draws, settings, gaps, asked)
            tokens += canvas
            if any(token in settings.eos_ids for token in canvas):
                break
    return tokens[len(prompt) :]


def answer_of(tokens: Sequence[int], settings: Settings) -> list[int]:
    """The tokens of whole canvases that are emitted: at most as many as asked for, none from the first end of sequence on."""
    kept = list(tokens[: settings.max_new_tokens])
    ends = [place for place, token in enumerate(kept) if token in settings.eos_ids]
    return kept[: ends[0]] if ends else kept
