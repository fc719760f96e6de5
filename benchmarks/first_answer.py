"""Measure how long `dlstep demo` takes until its first live answer: the imports, and everything after them.

Each repetition is a new process with one torch thread. A first process, which is not measured,
finds the modules that an answer needs. The measured processes import these modules first, so
`answer_s` contains no imports, only loading the model and decoding one problem. Times are processor
seconds, except `wall_s`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from time import perf_counter, process_time

from . import entry

REPETITIONS = 5


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """Medians over processes: processor seconds of the imports, processor seconds from the end of the imports to the first
    answer, and wall-clock seconds of the whole process.

    `later` is the largest number of modules that a process imported after the measured imports.
    """

    imports_s: float
    answer_s: float
    wall_s: float
    later: int


def answer(modules: list[str]) -> tuple[float, float, list[str]]:
    """Import `modules`, then load the demo's first model and answer one problem.

    Return the processor seconds of both, and the names of all modules that are then imported.
    """
    for name in modules:
        with suppress(ImportError):  # libraries also add names to `sys.modules` that cannot be imported
            import_module(name)
    imports = process_time()
    from dlstep import tiny
    from dlstep.cli.demo import SHOWN
    from dlstep.core import SamplingParams

    decoder = SHOWN[0]
    (output,) = decoder.model(decoder.values[0], "cpu").generate([tiny.problems(1)[0].prompt], SamplingParams(max_tokens=64))
    assert output.text
    return imports, process_time() - imports, list(sys.modules)


def measure_first_answer(repetitions: int = REPETITIONS) -> Iterator[FirstAnswer]:
    """Yield one row, the medians over `repetitions` processes."""
    *_, modules = _in_process([])
    runs: list[tuple[float, float, float, int]] = []
    for _ in range(repetitions):
        began = perf_counter()
        imports, after, loaded = _in_process(modules)
        runs.append((imports, after, perf_counter() - began, len({*loaded} - {*modules})))
    imports, after, wall, _ = (round(median(column), 2) for column in zip(*runs, strict=True))
    yield FirstAnswer(imports, after, wall, max(later for *_, later in runs))


def _in_process(modules: list[str]) -> tuple[float, float, list[str]]:
    """Return what `answer` returns in a new process."""
    code = "import json, sys; from benchmarks.first_answer import answer; print(json.dumps(answer(json.load(sys.stdin))))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=json.dumps(modules), stdout=subprocess.PIPE, text=True, check=True)
    imports, after, loaded = json.loads(done.stdout.splitlines()[-1])
    return imports, after, loaded


if __name__ == "__main__":
    entry.run(__doc__, measure_first_answer, repetitions=(REPETITIONS, "Number of measured processes."))
