"""What loops with causal rows share: random requests, rows that predict the next position, and draws by position."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from dlstep import strategies
from dlstep.core import SamplingParams, SequenceState, Spec
from dlstep.driver import TorchDriver

from ..helpers.decoding import by_driver, decoded_alone, room_for_one
from .counted_draws import sample_numbers
from .engine import Pair
from .models import EOS, MASK, NEVER, ROWS, WORDS, Dense

CLOSE = 1e-4  # decisions closer than this may differ by rounding


@dataclass(frozen=True)
class Asked:
    """One request: `options` are fields of the strategy. Few words are likely, so that guesses are often right."""

    seed: int
    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    likely: tuple[int, ...]
    options: dict[str, Any]

    @property
    def limit(self) -> int:
        """First position after the answer."""
        return len(self.prompt) + self.max_tokens


@dataclass
class Draws:
    """Samples of a request: the best id, or the best after Gumbel noise of seed, position and draw number."""

    network: Dense
    seed: int
    temperature: float

    def sample(self, row: Tensor, position: int, draw: int = 0) -> int:
        """The token of `position`, for a row of logits."""
        scores = row[:WORDS].float().clone()
        scores[MASK] = -math.inf
        if self.temperature:
            uniform = sample_numbers(self.seed, position, draw, WORDS)
            scores = scores / self.temperature - (-uniform.log()).log()
        best, second = scores.topk(2).values.tolist()
        self.network.note(best - second)
        return int(scores.argmax())


def causal_rows(network: Dense, tokens: Sequence[int]) -> Tensor:
    """Logits of all rows, each of which sees itself and what is before it; row i predicts position i + 1."""
    return network.predict(tokens, lambda position: position).roll(-network.shift, 0)


def asked(seed: int, count: int, options: Callable[[Random], dict[str, Any]]) -> list[Asked]:
    """Random requests, greedy and sampled."""
    random = Random(seed)
    return [
        Asked(
            random.randrange(1 << 40),
            tuple(random.randrange(EOS, WORDS) for _ in range(random.randrange(1, 9))),
            random.randrange(1, 12),
            random.choice((0.0, 0.0, 0.7, 1.0)),
            (*random.sample(range(3, WORDS), random.choice((1, 2, 3, 6))), *random.choice(((), (EOS,)))),
            options(random),
        )
        for _ in range(count)
    ]


@contextmanager
def preferring(pair: Pair, likely: Sequence[int]) -> Iterator[None]:
    """Let both networks of `pair` say little but the words `likely`."""
    pair.head.bias[:WORDS] = -6.0
    pair.head.bias[list(likely)] = 0.0
    if EOS not in likely:
        pair.head.bias[EOS] = NEVER
    try:
        yield
    finally:
        pair.head.bias.copy_(torch.zeros(ROWS))


def engine_decode(pair: Pair, case: Asked, name: str, spec: Spec) -> SequenceState:
    """The engine's finished sequence, alone and with room to spare."""
    config, strategy = room_for_one(spec), strategies.make(name, **case.options)
    params = SamplingParams(max_tokens=case.max_tokens, temperature=case.temperature, seed=case.seed)
    return decoded_alone(config, strategy, case.prompt, params, by_driver(TorchDriver(pair.checkpoint, config)))
