"""How many threads torch gets: by the caller, the environment, or the size of the network."""

import os
import subprocess
import sys

import pytest
import torch

from dlstep.engine import devices
from dlstep.engine.devices import chosen_threads, set_threads
from dlstep.models.checkpoint import SMALL

LARGE = 10 * SMALL


@pytest.mark.parametrize(
    "parameters, asked, environment, expected",
    [
        (1000, None, {}, 1),
        (SMALL - 1, None, {}, 1),
        (SMALL, None, {}, 8),
        (1000, 3, {}, 3),
        (LARGE, 1, {}, 1),
        (1000, None, {"OMP_NUM_THREADS": "4"}, None),
        (1000, None, {"MKL_NUM_THREADS": "4"}, None),
        (1000, None, {"OMP_NUM_THREADS": ""}, 1),
        (1000, 2, {"OMP_NUM_THREADS": "4"}, 2),
    ],
)
def test_the_choice(parameters, asked, environment, expected, monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, environment.get(name, ""))
    assert chosen_threads(parameters, asked, default=8) == expected


@pytest.fixture
def torch_threads(monkeypatch):
    """The number that torch has, as the last of the list; the real one is left alone."""
    numbers = [8]
    monkeypatch.setattr(torch, "get_num_threads", lambda: numbers[-1])
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    monkeypatch.setattr(devices, "_changed", {})
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return numbers


def test_a_large_network_after_small_ones_gets_torchs_own_number(torch_threads):
    for parameters, asked in ((1000, None), (1000, None), (LARGE, None), (1000, 5), (LARGE, None)):
        set_threads(parameters, asked)
    assert torch_threads == [8, 1, 1, 8, 5, 8]


def test_a_number_that_the_program_gave_to_torch_is_its_own(torch_threads):
    set_threads(1000)
    torch_threads.append(6)
    set_threads(LARGE)
    assert torch_threads[-1] == 6


COMMAND = """
import os, sys
from dlstep.cli import main
assert "torch" not in sys.modules
assert main(["generate", "a prompt", "--max_tokens", "1", *sys.argv[1:]]) == 0
import torch
print(os.environ["GOMP_SPINCOUNT"], torch.get_num_threads())
"""


def printed(code, *arguments, **environment):
    """The last line that a new process prints, whose environment says nothing else about threads."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=kept | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.full
def test_the_command_says_so_before_torch_loads():
    assert printed(COMMAND) == "1000 1"
