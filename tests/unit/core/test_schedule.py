"""The same random schedules in processes that hash differently."""

import os
import random
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from dlstep import strategies
from dlstep.core import Config, Request, SamplingParams, abort, add, commit, init, schedule
from dlstep.testing.harness import shadow

from ...helpers.recorded import spec_for

SIZES = {"block_size": [2, 4, 8], "buffer_size": [1, 2, 3], "canvas_length": [2, 4, 8], "max_denoising_steps": [2, 5]}


def random_value(draw, name):
    """A strategy of random small sizes."""
    chosen = strategies.load(name)
    sizes = {field.name: draw.choice(SIZES[field.name]) for field in fields(chosen) if field.name in SIZES}
    if name == "fast_dllm_v2":  # a block of one sub-block is none
        sizes["buffer_size"] = draw.choice([2, 3])
    return chosen(**sizes)


def random_run(seed, name):
    """The last state of a random schedule, with preemptions and aborts."""
    draw = random.Random(seed)
    value, page_size = random_value(draw, name), draw.choice([1, 3, 4, 8])
    least = -(-48 // page_size)
    config = Config(spec_for(value), page_size, least + draw.randint(0, 2), 40, draw.randint(41, 120), draw.randint(1, 6))
    state, device = init(config, value), shadow(config, value)
    asked = [
        Request(n, tuple(draw.randrange(48) for _ in range(draw.randint(1, 20))), SamplingParams(max_tokens=20))
        for n in range(8)
    ]
    while asked or not state.done:
        if asked and draw.random() < 0.5:
            state = add(state, asked.pop())
        samples = device.run(schedule(state))
        if draw.random() < 0.05 and (live := [*state.running, *state.waiting]):
            state = abort(state, draw.choice(live).request.id)
        state = commit(state, samples)
    return state


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from tests.unit.core.test_schedule import random_run
from dlstep.core.trace import to_json
import json
for name in {names!r}:
    states = [random_run(seed, name) for seed in range(6)]
    print(json.dumps([(to_json(state), state.cache_digest) for state in states]))
"""


@cache
def printed(hash_seed):
    """The lines that a process with this hash seed prints for each strategy."""
    names = strategies.available()
    script = SCRIPT.format(folder=str(Path(__file__).parents[3]), names=names)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return dict(zip(names, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("name", strategies.available())
def test_processes_with_other_hash_seeds_agree(name):
    first = printed("1")[name]
    assert len(first) > 1000 and first == printed("2")[name]
