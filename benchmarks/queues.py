"""Measure the host cost of a request while many others wait or have ended; no model is needed.

Each request that ends is replaced by another, so the number of waiting requests stays constant. The
processor time excludes the scripted driver: it covers adding, scheduling, committing and updates.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from time import thread_time
from typing import Literal

from dlstep.core import Config, Plan, Request, Samples, SamplingParams, State, abort, add, init
from dlstep.engine.decode import Decode
from dlstep.strategies import load

from . import entry
from .scripts import BLOCK, EOS, SCRIPTS

WAITING = (100, 1_000, 5_000, 20_000)
ENDED = (0, 10_000, 100_000)
BATCH = 32
SERVED = 8 * BATCH  # requests per measurement
REPETITIONS = 5

Others = Literal["waiting", "ended"]


@dataclass(frozen=True, slots=True)
class QueueCost:
    """Microseconds of host time per request with `count` others waiting, or ended and not pruned.

    `ratio` is relative to the row with the smallest count.
    """

    others: Others
    count: int
    us_per_request: float
    ratio: float


class ClockedDriver:
    """A scripted driver that measures its own time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.spent = clock, 0.0
        self._driver = SCRIPTS["multi_bd"].filling(Random(0))

    def run(self, plan: Plan) -> Samples:
        """Return the samples of `plan`."""
        begin = self.clock()
        samples = self._driver.run(plan)
        self.spent += self.clock() - begin
        return samples


def request(number: int) -> Request:
    """Return a request with a distinct prompt and an answer of four blocks."""
    prompt = (number % EOS, number // EOS, *range(number % BLOCK))
    return Request(number, prompt, SamplingParams(max_tokens=4 * BLOCK))


def begin(others: Others, size: int) -> State:
    """Return a state in which `size` requests wait, or have ended."""
    pages = 8 * BATCH
    config = Config(SCRIPTS["multi_bd"].spec, BLOCK, pages, 8 * BLOCK, BATCH * 8 * BLOCK, BATCH)
    state = init(config, load("multi_bd")(**SCRIPTS["multi_bd"].options))
    for number in range(size):
        state = add(state, request(number))
        if others == "ended":
            state = abort(state, number)
    return state


def serve(state: State, requests: int, *, prunes: bool, clock: Callable[[], float] = thread_time) -> float:
    """Return seconds per request for serving `requests` from `state`, replacing each that ends."""
    driver = ClockedDriver(clock)
    decode = Decode(state, driver, prunes=prunes)
    fresh = count(state.next_seq_id)
    start, served = clock(), 0
    for _ in range(BATCH):
        decode.add(request(next(fresh)))
    while served < requests:
        ended = sum(update.finish_info is not None for update in decode.step())
        served += ended
        for _ in range(ended):
            decode.add(request(next(fresh)))
    return (clock() - start - driver.spent) / served


def measure_queue(
    waiting: tuple[int, ...] = WAITING,
    ended: tuple[int, ...] = ENDED,
    *,
    served: int = SERVED,
    repetitions: int = REPETITIONS,
) -> Iterator[QueueCost]:
    """Yield a row for each number of others, with the minimum over interleaved repetitions."""
    kinds: tuple[tuple[Others, tuple[int, ...]], ...] = (("waiting", waiting), ("ended", ended))
    for others, sizes in kinds:
        states = [begin(others, size) for size in sizes]
        least = [float("inf")] * len(sizes)
        for _ in range(repetitions):
            for place, state in enumerate(states):
                least[place] = min(least[place], serve(state, served, prunes=others == "waiting"))
        for size, seconds in zip(sizes, least, strict=True):
            yield QueueCost(others, size, round(1e6 * seconds, 1), round(seconds / least[0], 3))


if __name__ == "__main__":
    entry.run(__doc__, measure_queue)
