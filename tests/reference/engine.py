"""The engine's answers to random cases, through its public functions, and the comparison with those of a loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from transformers import PreTrainedModel

from dlstep import SamplingParams, Strategy, strategies
from dlstep.driver import TorchDriver
from dlstep.models import Checkpoint, load_checkpoint

from ..helpers.decoding import by_driver, decoded_alone, room_for_one
from .models import EOS, MASK, NEVER, WORDS, BiasedHead, Dense, make_network, write_folder

CLOSE = 1e-5  # decisions closer than this may differ by rounding


@dataclass(frozen=True)
class Pair:
    """A network for the loops, and the same one for the engine."""

    network: PreTrainedModel
    checkpoint: Checkpoint
    head: BiasedHead


@dataclass(frozen=True)
class Case:
    """One request: its answer ends before `limit`. `options` are fields of the strategy."""

    number: int
    prompt: tuple[int, ...]
    max_tokens: int
    max_model_len: int
    eos_bias: float
    options: dict[str, Any] = field(default_factory=dict)
    pins: dict[int, int] = field(default_factory=dict)  # tokens of pinned positions

    @property
    def limit(self) -> int:
        """First position after the answer."""
        return min(len(self.prompt) + self.max_tokens, self.max_model_len)


def make_pair(folder: Path, seed: int, settle: float, sharp: float) -> Pair:
    """A random network, loaded by the engine from a folder."""
    network = make_network(seed, settle, sharp)
    checkpoint = load_checkpoint(write_folder(network, folder))
    head = BiasedHead(network.lm_head)
    network.lm_head = checkpoint.network.lm_head = head  # pyright: ignore[reportAttributeAccessIssue]
    return Pair(network, checkpoint, head)


def random_cases(seed: int, count: int, block: int, options: Callable[[Random], dict[str, Any]]) -> list[Case]:
    """Cases with prompts around multiples of `block`, and answers that end anywhere."""
    random = Random(seed)
    cases = []
    for number in range(count):
        chosen = options(random)
        length = max(1, random.choice((0, 1, 2)) * block + random.choice((-1, 0, 0, 1, 2)))
        prompt = tuple(random.randrange(EOS, WORDS) for _ in range(length))
        max_tokens = random.randrange(1, 3 * block + 3)
        limit = length + max_tokens
        max_model_len = max(length + 1, limit - random.choice((0, 1, block))) if random.random() < 0.3 else limit + 8
        eos_bias = random.choice((NEVER, 0.0, 2.0, 4.0))
        cases.append(Case(number, prompt, max_tokens, max_model_len, eos_bias, chosen))
    return cases


def engine_answer(pair: Pair, case: Case, strategy: Strategy, head_shift: int = 0) -> tuple[int, ...]:
    """The engine's answer, alone and with room to spare."""
    config = room_for_one(replace(pair.checkpoint.spec, head_shift=head_shift), case.max_model_len)
    offsets = {position - len(case.prompt): token for position, token in case.pins.items()}
    params = SamplingParams(max_tokens=case.max_tokens, pinned=offsets)  # pyright: ignore[reportArgumentType]
    return decoded_alone(config, strategy, case.prompt, params, by_driver(TorchDriver(pair.checkpoint, config))).answer


@dataclass
class Tally:
    """Counts of the cases: how many were compared, ended early, or were too close to call."""

    compared: int = 0
    stopped: int = 0
    close: int = 0
    smallest: float = 1.0

    def __str__(self) -> str:
        return (
            f"{self.compared} answers compared, {self.stopped} of them stopped early, smallest margin {self.smallest:.1e}; "
            f"{self.close} too close to call"
        )


Loop = Callable[..., list[int]]  # of the network, the prompt, the limit, the options, and the pins where there are any


def compare(pairs: Sequence[Pair], cases: Sequence[Case], name: str, loop: Loop, head_shift: int = 0) -> Tally:
    """Check that engine and loop answer all cases alike; those with a decision too close to call are only counted."""
    tally = Tally()
    for case in cases:
        pair = pairs[case.number % len(pairs)]
        pair.head.bias[EOS] = case.eos_bias
        dense = Dense(pair.network, head_shift)
        expected = loop(dense, case.prompt, case.limit, dict(case.options), *([case.pins] if case.pins else []))
        if dense.smallest < CLOSE:
            tally.close += 1
            continue
        strategy = strategies.make({"sliding": "dual_cache"}.get(name, name), **case.options)
        answer = engine_answer(pair, case, strategy, head_shift)
        assert list(answer) == expected, case
        assert MASK not in answer and EOS not in answer
        tally.compared += 1
        tally.stopped += len(answer) < case.limit - len(case.prompt)
        tally.smallest = min(tally.smallest, dense.smallest)
    return tally
