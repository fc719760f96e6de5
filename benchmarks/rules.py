"""Compare the host cost of rules per request and step with a threshold in the same strategy.

Steps are measured after a prompt, as in `benchmarks.host`. Grids have blocks of 32; canvases have no
cache. A rule that reads the whole answer is compared with a threshold over the whole answer. Rules
unmask two tokens per step, `dilated` five in its only block.

`remdm` unmasks at random and skips passes that unmask nothing: two tokens per step in a single
block, so its baseline also has one block. `early_commit` reads the first five positions of an
answer, as published, or all of them (`all`), which samples a third more positions than the
threshold.

Times are microseconds per request and step; `ratio` divides their sum by that of the baseline.
`wanted` and `tokens` are the positions that a step samples and unmasks per request.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import Any

from dlstep.core import State, commit, schedule

from . import entry
from .host import STEPS, build, least_times, mean_us
from .rule_answers import CARRIERS, rule_scripts
from .scripts import StrategyScript, unmasked


def measure_rules(rule: str, batches: tuple[int, ...], lengths: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield a row for each form of a rule, length and batch, each measured in a separate process."""
    forms = [form for form in rule_scripts() if rule in ("all", form.partition(" ")[0])]
    fresh = ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn"))
    with fresh as processes:
        found = [processes.submit(measure_rule, form, n, b) for n in lengths for b in batches for form in forms]
        for row in found:
            yield row.result()


def measure_rule(form: str, length: int, batch: int) -> dict[str, Any]:
    """Return the row of one form of a rule; baseline and rule are measured in turns."""
    carrier, script = rule_scripts()[form]
    states = [(build(script, "prompt", length, batch), script) for script in (CARRIERS[carrier], script)]
    plain, own = (mean_us(steps, batch) for steps in least_times(states))
    sampled, tokens = rates(*states[1])
    planned, committed, lowered, unpacked = own
    return {
        "rule": form,
        "length": length,
        "batch": batch,
        "wanted": sampled,
        "tokens": tokens,
        "schedule_us": planned,
        "lower_us": lowered,
        "unpack_us": unpacked,
        "commit_us": committed,
        "ratio": round(sum(own) / sum(plain), 2),
    }


def rates(state: State, script: StrategyScript) -> tuple[float, float]:
    """Return how many positions a step samples per request, and how many it unmasks."""
    driver, sampled, batch = script.driver(Random(0)), 0, len(state.running)
    before = sum(map(unmasked, state.running))
    for _ in range(STEPS):
        plan = schedule(state)
        sampled += sum(len(span.wanted.sampled) for span in plan.spans)
        state = commit(state, driver.run(plan))
    return round(sampled / STEPS / batch, 1), round((sum(map(unmasked, state.running)) - before) / STEPS / batch, 1)


COLUMNS = ("rule", "length", "batch", "wanted", "tokens", "unpack_us", "commit_us", "ratio")

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure_rules,
        COLUMNS,
        rule=("all", "A rule, or all."),
        batches=((32,), "Requests at a time."),
        lengths=((512,), "Tokens of a sequence."),
    )
