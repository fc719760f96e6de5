"""The engine's answers to random cases, through its public functions, and the comparison with those of a loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from transformers import PreTrainedModel

from dlstep import Request, SamplingParams, Strategy, commit, schedule, strategies
from dlstep.driver import TorchDriver
from dlstep.models import Checkpoint, load_checkpoint

from ..helpers.decoding import by_driver, decoded_alone, room_for_one, with_requests
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
    preempted: int = 0
    shared: int = 0

    def __str__(self) -> str:
        return (
            f"{self.compared} answers compared, {self.stopped} of them stopped early, smallest margin {self.smallest:.1e}; "
            f"{self.close} too close to call"
        ) + (f"; {self.preempted} preemptions, {self.shared} pages shared" if self.preempted or self.shared else "")


Loop = Callable[..., list[int]]  # of the network, the prompt, the limit, the options, and the pins where there are any


def expected_answer(pair: Pair, case: Case, loop: Loop, head_shift: int, tally: Tally) -> list[int] | None:
    """The answer of the loop; None if one of its decisions is too close to call."""
    pair.head.bias[EOS] = case.eos_bias
    dense = Dense(pair.network, head_shift)
    expected = loop(dense, case.prompt, case.limit, dict(case.options), *([case.pins] if case.pins else []))
    if dense.smallest < CLOSE:
        tally.close += 1
        return None
    assert MASK not in expected and EOS not in expected
    tally.compared += 1
    tally.stopped += len(expected) < case.limit - len(case.prompt)
    tally.smallest = min(tally.smallest, dense.smallest)
    return expected


def compare(pairs: Sequence[Pair], cases: Sequence[Case], name: str, loop: Loop, head_shift: int = 0) -> Tally:
    """Check that engine and loop answer all cases alike; those with a decision too close to call are only counted."""
    tally = Tally()
    for case in cases:
        pair = pairs[case.number % len(pairs)]
        if (expected := expected_answer(pair, case, loop, head_shift, tally)) is not None:
            strategy = strategies.make({"sliding": "dual_cache"}.get(name, name), **case.options)
            assert list(engine_answer(pair, case, strategy, head_shift)) == expected, case
    return tally


def crowds(seed: int, count: int, block: int, options: Callable[[Random], dict[str, Any]]) -> list[list[Case]]:
    """`count` random cases, four by four with the same options and head, and with prompts that begin alike."""
    found = []
    for number in range(count // 4):
        first, *others = random_cases(1000 * seed + number, 4, block, options)
        begin = first.prompt * 10
        prompts = [first.prompt, *((*begin[: len(other.prompt) - 1], other.prompt[-1]) for other in others)]
        same = {"eos_bias": first.eos_bias, "options": first.options}
        found.append([replace(case, prompt=prompt, **same) for case, prompt in zip((first, *others), prompts, strict=True)])
    return found


def compare_crowds(pair: Pair, crowds: Sequence[Sequence[Case]], name: str, loop: Loop, head_shift: int) -> Tally:
    """Check that engine and loop answer all cases alike, where the engine decodes each crowd at once.

    There is room for one case and a half, unless preemption may change an answer.
    """
    tally = Tally()
    for cases in crowds:
        expected = [expected_answer(pair, case, loop, head_shift, tally) for case in cases]
        strategy, longest = strategies.make(name, **cases[0].options), max(case.limit for case in cases)
        pages = (longest + 8) * 3 // 8 if strategy.exact else 16 * len(cases)
        config = replace(
            room_for_one(replace(pair.checkpoint.spec, head_shift=head_shift), longest),
            num_pages=pages,
            max_num_reqs=len(cases),
        )
        params = [SamplingParams(max_tokens=case.limit - len(case.prompt)) for case in cases]
        requests = [Request(case.number, case.prompt, given) for case, given in zip(cases, params, strict=True)]
        state, driver = with_requests(config, strategy, requests), TorchDriver(pair.checkpoint, config)
        while not state.done:
            plan = schedule(state)
            tally.preempted += len(plan.preemptions)
            tally.shared += sum(len(admission.shared) for admission in plan.admissions)
            state = commit(state, driver.run(plan))
        for case, answer in zip(cases, expected, strict=True):
            assert answer is None or list(state.finished[case.number].answer) == answer, case
    return tally
