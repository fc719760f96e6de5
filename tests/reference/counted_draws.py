"""Random numbers as a function of what they are drawn for: of seed, position, forward and purpose.

All are from splitmix64, except the noise of ids, which is from Philox.
"""

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


def stream(seed: int, position: int, draw: int, purpose: int) -> int:
    """The 64 bits that identify a stream."""
    value = mixed(seed & BITS)
    for counter in (position, draw, purpose):
        value = mixed(value ^ counter)
    return value


def number(seed: int, position: int, draw: int, purpose: int) -> int:
    """64 bits: the only number of a stream, unless it is for sampling."""
    return mixed(stream(seed, position, draw, purpose) ^ mixed(0))


def philox(counter: tuple[int, int], key: int) -> tuple[int, int]:
    """Ten rounds of Philox 2x32. Each multiplies one half of the counter and mixes the other with the round's key."""
    low, high = counter
    keys = [(key + number * 0x9E3779B9) % (1 << 32) for number in range(10)]
    for each in keys:
        upper, lower = divmod(low * 0xD256D193, 1 << 32)
        low, high = upper ^ each ^ high, lower
    return low, high


def sample_numbers(seed: int, position: int, draw: int, count: int) -> Tensor:
    """The uniform numbers of the first `count` ids: two of each counter."""
    high, low = divmod(stream(seed, position, draw, SAMPLE), 1 << 32)
    words = [word for pair in range((count + 1) // 2) for word in philox((pair, high), low)][:count]
    return (torch.tensor([word >> 9 for word in words], dtype=torch.float32) + 0.5) * 2.0**-23


class CountedDraws:
    """The draws of one request. `gaps` learns how close its samples were to other ones."""

    def __init__(self, seed: int, vocabulary: int, gaps: Gaps) -> None:
        self.seed, self.vocabulary, self.gaps = seed, vocabulary, gaps

    def _integers(self, start: int, count: int, draw: int, purpose: int) -> Tensor:
        positions = range(start, start + count)
        return torch.tensor([((number(self.seed, p, draw, purpose) >> 33) * self.vocabulary) >> 31 for p in positions])

    def opening(self, start: int, count: int) -> Tensor:
        """The tokens that a canvas opens with; they do not depend on any forward."""
        return self._integers(start, count, 0, OPEN)

    def noise(self, start: int, count: int, step: int) -> Tensor:
        """The tokens of the positions that are not accepted."""
        return self._integers(start, count, step, RENOISE)

    def sample(self, scores: Tensor, start: int, step: int) -> Tensor:
        """The largest of score plus Gumbel noise."""
        positions = range(start, start + len(scores))
        uniform = torch.stack([sample_numbers(self.seed, position, step, self.vocabulary) for position in positions])
        perturbed = scores - (-uniform.log()).log()
        self.gaps.note_best(perturbed)
        return perturbed.argmax(-1)
