"""The same random schedules in processes that hash differently."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from dlstep import strategies

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from tests.helpers.recorded import recorded
from dlstep.core.trace import to_json
import json
for name in {names!r}:
    states = [recorded(name, seed)[1] for seed in range(6)]
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


@pytest.mark.full
@pytest.mark.parametrize("name", strategies.available())
def test_processes_with_other_hash_seeds_agree(name):
    first = printed("1")[name]
    assert len(first) > 1000 and first == printed("2")[name]
