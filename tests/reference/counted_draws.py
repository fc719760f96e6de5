"""Random numbers as a function of what they are drawn for: of seed, position, forward and purpose, by splitmix64."""

import torch
from torch import Tensor

from .diffusion_gemma import Gaps

SAMPLE, RENOISE, OPEN = 0, 1, 2
BITS = (1 << 64) - 1


def mixed(value: int) -> int:
    """One step of splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & BITS
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & BITS
    return value ^ (value >> 31)


def number(seed: int, position: int, draw: int, purpose: int, index: int) -> int:
    """64 bits."""
    value = mixed(seed & BITS)
    for counter in (position, draw, purpose, mixed(index)):
        value = mixed(value ^ counter)
    return value


class CountedDraws:
    """The draws of one request. `gaps` learns how close its samples were to other ones."""

    def __init__(self, seed: int, vocabulary: int, gaps: Gaps) -> None:
        self.seed, self.vocabulary, self.gaps = seed, vocabulary, gaps

    def _integers(self, start: int, count: int, draw: int, purpose: int) -> Tensor:
        positions = range(start, start + count)
        return torch.tensor([((number(self.seed, p, draw, purpose, 0) >> 33) * self.vocabulary) >> 31 for p in positions])

    def opening(self, start: int, count: int) -> Tensor:
        """The tokens that a canvas opens with; they do not depend on any forward."""
        return self._integers(start, count, 0, OPEN)

    def noise(self, start: int, count: int, step: int) -> Tensor:
        """The tokens of the positions that are not accepted."""
        return self._integers(start, count, step, RENOISE)

    def sample(self, scores: Tensor, start: int, step: int) -> Tensor:
        """The largest of score plus Gumbel noise."""
        streams = [
            [number(self.seed, position, step, SAMPLE, index) >> 41 for index in range(self.vocabulary)]
            for position in range(start, start + len(scores))
        ]
        uniform = (torch.tensor(streams, dtype=torch.float32) + 0.5) * 2.0**-23
        perturbed = scores - (-uniform.log()).log()
        self.gaps.note_best(perturbed)
        return perturbed.argmax(-1)
