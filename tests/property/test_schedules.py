"""Many random schedules at once, and the same schedule in processes that hash differently."""

import os
import random
import subprocess
import sys

import pytest

from dlstep import strategies
from dlstep.core import Config, Request, SamplingParams, Spec, State, abort, add, commit, init, schedule
from dlstep.testing.harness import shadow

SPEC = Spec(mask_id=49, eos_ids=(48,), vocab_size=50)


def random_run(seed: int, name: str) -> tuple[State, int, int]:
    """The last state of a random schedule, and how many preemptions and aborts it had."""
    draw = random.Random(seed)
    value = strategies.load(name)(block_size=draw.choice([2, 4, 8]), buffer_size=draw.choice([1, 2, 3]))
    config = Config(SPEC, draw.choice([1, 3, 4, 8]), 64, 40, 40, draw.randint(1, 6))
    least = -(-48 // config.page_size)
    config = Config(SPEC, config.page_size, least + draw.randint(0, 2), 40, draw.randint(40, 120), config.max_num_reqs)
    state, device = init(config, value), shadow(config, value)
    waiting = [
        Request(n, tuple(draw.randrange(48) for _ in range(draw.randint(1, 20))), SamplingParams(max_tokens=20))
        for n in range(8)
    ]
    preemptions = aborts = 0
    while waiting or not state.done:
        if waiting and draw.random() < 0.5:
            state = add(state, waiting.pop())
        plan = schedule(state)
        preemptions += len(plan.preemptions)
        samples = device.run(plan)
        if draw.random() < 0.05:
            live = [*state.running, *state.waiting]
            if live:
                state, aborts = abort(state, draw.choice(live).id), aborts + 1
        state = commit(state, samples)
    return state, preemptions, aborts


def test_a_thousand_random_schedules_leave_no_page_owned(capsys: pytest.CaptureFixture[str]) -> None:
    owned = preemptions = aborts = 0
    for seed in range(1000):
        state, preempted, aborted = random_run(seed, strategies.available()[seed % len(strategies.available())])
        owned += len(state.cache.owners)
        preemptions, aborts = preemptions + preempted, aborts + aborted
    with capsys.disabled():
        print(f"\n1000 random schedules, {preemptions} preemptions, {aborts} aborts: {owned} pages owned at the end")
    assert not owned and preemptions > 100 and aborts > 100


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from test_schedules import random_run
from dlstep.core.codec import to_json
import json
for seed in range(6):
    state, _, _ = random_run(seed, {name!r})
    print(json.dumps(to_json(state)), state.line)
"""


@pytest.mark.parametrize("name", strategies.available())
def test_processes_with_other_hash_seeds_agree(name: str) -> None:
    script = SCRIPT.format(folder=os.path.dirname(__file__), name=name)

    def output(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    first = output("1")
    assert len(first) > 1000 and first == output("2")
