"""Measure tokens per second with each `buffer_size` at several loads, and write the table for `--buffer_policy`.

A load is a number of requests that are decoded together. At each load, the table has the fastest
`buffer_size` with at least `--at_least` of the best accuracy. A load in between gets the
`buffer_size` of the nearest load, by ratio. The table is valid for this model and device.
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import yaml

from dlstep import LLM, SamplingParams
from dlstep.evaluate import EvalOptions, evaluate_with
from dlstep.evaluate.items import read_problems
from dlstep.evaluate.options import grid_of

ROUNDS = 4  # answers of a measurement, for each request of the load


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens per second of a buffer size at a load, and the share of right answers."""

    load: int
    buffer_size: int
    tokens_per_second: float
    accuracy: float


def rates(model: str | None, task: EvalOptions, sizes: Sequence[int], loads: Sequence[int], repeats: int) -> list[Rate]:
    """Return the median rate of each size at each load. Sizes are measured in turns; the first turn is not counted."""
    found: list[Rate] = []
    prompts = [problem.prompt for problems in read_problems(task).values() for problem in problems]
    accuracies = dict(zip(sizes, accuracies_of(LLM(model=model), task, sizes), strict=True))
    for load in loads:
        llm = LLM(model=model, max_num_reqs=load)
        asked = [prompts[number % len(prompts)] for number in range(ROUNDS * load)]
        seconds: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(repeats + 1):
            for size in sizes:
                params = SamplingParams(max_tokens=task.max_tokens or 64, strategy_options=(("buffer_size", size),))
                begin = perf_counter()
                outputs = llm.generate(asked, params, progress=False)
                tokens = sum(len(output.token_ids) for output in outputs)
                seconds[size].append((perf_counter() - begin) / max(tokens, 1))
        found += [Rate(load, size, 1 / median(each[1:]), accuracies[size]) for size, each in seconds.items()]
    return found


def accuracies_of(llm: LLM, task: EvalOptions, sizes: Sequence[int]) -> list[float]:
    """Return the share of right answers with each size."""
    with TemporaryDirectory() as folder:
        runs = [replace(task, grid=grid_of({"buffer_size": [size]}), out=f"{folder}/{size}") for size in sizes]
        return [evaluate_with(llm, run).answers().accuracy for run in runs]


def policy(found: Sequence[Rate], at_least: float) -> list[dict[str, int]]:
    """Return the rows of the table: the fastest size at each load that is accurate enough."""
    best = max(rate.accuracy for rate in found)
    assert best, "no answer was right, so no buffer_size can be chosen"
    good = [rate for rate in found if rate.accuracy >= at_least * best]
    loads = sorted({rate.load for rate in good})
    chosen = [max((rate for rate in good if rate.load == load), key=lambda rate: rate.tokens_per_second) for load in loads]
    rows = [
        {"max_requests": max(rate.load, int((rate.load * above.load) ** 0.5)), "buffer_size": rate.buffer_size}
        for rate, above in pairwise(chosen)
        if rate.buffer_size != above.buffer_size
    ]
    return [*rows, {"buffer_size": chosen[-1].buffer_size}]


def main() -> None:
    """Measure, print every rate, and write the table."""
    parser = ArgumentParser(prog="python -m benchmarks.buffer_policy", description=__doc__)
    parser.add_argument("out", type=Path, help="the file to write, such as policy.yml")
    parser.add_argument("--model")
    parser.add_argument("--questions", help="a file of the task `questions`; without it, the stories of the embedded models")
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--max_tokens", type=int)
    parser.add_argument("--buffer_sizes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--loads", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--at_least", type=float, default=0.98)
    given = parser.parse_args()
    tasks = ("questions" if given.questions else "shells",)
    task = EvalOptions(tasks, questions=given.questions, dataset_limit=given.problems, max_tokens=given.max_tokens)
    found = rates(given.model, task, given.buffer_sizes, sorted(given.loads), given.repeats)
    print(*found, sep="\n")
    given.out.write_text(yaml.safe_dump(policy(found, given.at_least), sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()
