"""Host cost per request and step: schedule, lower, unpack, commit, with a scripted driver in place of the network.

Blocks of 32, four in flight, pages of 32, two tokens accepted a step. Long answers are built by accepting whole blocks
first. The making of samples is not timed. Each figure is the least of several interleaved repetitions.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter
from typing import Literal, Protocol

from .. import strategies
from ..core import Config, Plan, Request, Rows, Samples, SamplingParams, Span, Spec, State, abort, add, commit, init, schedule
from ..testing.scripted import ScriptedDriver

Regime = Literal["prompt", "generated"]
BATCHES = (1, 8, 32, 128, 256)
LENGTHS = (512, 4096, 32768)
REGIMES: tuple[Regime, ...] = ("prompt", "generated")
BLOCK, BUFFER, PAGE = 32, 4, 32
VOCABULARY = 150_000
SPEC = Spec(mask_id=VOCABULARY - 1, eos_ids=(VOCABULARY - 2,), vocab_size=VOCABULARY)
SAMPLED_HEAD = 256  # positions that stay to be decoded while measuring


class Lowering(Protocol):
    """The host side of a driver: `lower` turns a plan into arrays, `unpack` a packed answer into samples."""

    def lower(self, plan: Plan) -> object: ...

    def unpack(self, plan: Plan) -> Samples: ...


@dataclass(frozen=True, slots=True)
class HostCost:
    """Microseconds per request and step; `lower_us` and `unpack_us` are None where no driver was given."""

    strategy: str
    regime: Regime
    length: int
    batch: int
    schedule_us: float
    lower_us: float | None
    unpack_us: float | None
    commit_us: float


def whole_blocks(span: Span) -> Rows:
    """Every wanted position gets a token with certainty."""
    count = len(span.wanted)
    return Rows(tuple([position * 7919 % (VOCABULARY - 2) for position in span.wanted]), (1.0,) * count)


def two_tokens(random: Random) -> Callable[[Span], Rows]:
    """Two positions are confident: one of the first open block, one of any."""

    def rows(span: Span) -> Rows:
        wanted = span.wanted
        first_block_end = (wanted[0] // BLOCK + 1) * BLOCK
        first = sum(position < first_block_end for position in wanted)
        probabilities = [0.5] * len(wanted)
        probabilities[random.randrange(first)] = 0.95
        probabilities[random.randrange(len(wanted))] = 0.95
        return Rows(tuple([random.randrange(VOCABULARY - 2) for _ in wanted]), tuple(probabilities))

    return rows


def build(strategy: str, regime: Regime, length: int, batch: int) -> State:
    """A state of `batch` running requests, each about `length` tokens long and in the middle of its answer."""
    limit = length + SAMPLED_HEAD + 64
    value = strategies.load(strategy)(block_size=BLOCK, buffer_size=BUFFER, semi_complete_threshold=1.0)
    pages = -(-(limit + BLOCK) // PAGE) * batch
    config = Config(
        SPEC, PAGE, pages, max_model_len=limit, max_num_batched_tokens=batch * (limit + BLOCK), max_num_reqs=batch
    )
    state = init(config, value)
    random = Random(0)
    prompt_length = length if regime == "prompt" else BLOCK
    shared = tuple(random.randrange(VOCABULARY - 2) for _ in range(prompt_length - 1))
    for number in range(batch):  # another first token: no two requests share a page
        state = add(state, Request(number, (number, *shared), SamplingParams(max_tokens=limit - prompt_length)))
    driver = ScriptedDriver(whole_blocks)
    while not state.running or min(sequence.settled for sequence in state.running) < length - BLOCK:
        state = commit(state, driver.run(schedule(state)))
    steady = ScriptedDriver(two_tokens(random))
    for _ in range(24):
        state = commit(state, steady.run(schedule(state)))
    return state


def measure_state(state: State, steps: int, lowering: Lowering | None = None) -> tuple[float, float, float, float]:
    """Seconds per request-step of schedule, lower, unpack and commit over `steps` steps from `state` on."""
    driver = ScriptedDriver(two_tokens(Random(1)))
    spent = [0.0, 0.0, 0.0, 0.0]
    requests = 0
    for _ in range(steps):
        begin = perf_counter()
        plan = schedule(state)
        scheduled = perf_counter()
        samples = driver.run(plan)
        if lowering is not None:
            started = perf_counter()
            lowering.lower(plan)
            lowered = perf_counter()
            lowering.unpack(plan)
            spent[1] += lowered - started
            spent[2] += perf_counter() - lowered
        ready = perf_counter()
        state = commit(state, samples)
        spent[3] += perf_counter() - ready
        spent[0] += scheduled - begin
        requests += len(plan.spans)
    return tuple(seconds / requests for seconds in spent)  # type: ignore[return-value]
