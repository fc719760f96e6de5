"""What host cost is measured on is what it says."""

from random import Random

import pytest

from dlstep.bench.answers import SCRIPTS
from dlstep.bench.host import build
from dlstep.core import Sequence, commit, schedule
from dlstep.testing.scripted import ScriptedDriver


def taken(sequence: Sequence) -> int:
    """Positions in front of the window's end that hold a token."""
    end = sequence.window[-1].end if sequence.window else sequence.final
    return end - sum(len(block.undecided) for block in sequence.window)


@pytest.mark.parametrize(
    ("script", "least", "most"),
    [
        ("multi_bd", 1.9, 2.1),
        ("d2f", 1.9, 2.1),
        ("multi_bd_edit", 1.9, 2.1),
        ("multi_bd_edit_full", 3.4, 4.0),
        ("dmax", 1.9, 2.1),
        ("dmax_full", 3.4, 4.0),
    ],
)
def test_so_many_tokens_are_taken_a_step(script: str, least: float, most: float) -> None:
    state, driver = build(script, "generated", 512, 4), ScriptedDriver(SCRIPTS[script].steady(Random(0)))
    before, steps = sum(map(taken, state.running)), 64
    for _ in range(steps):
        state = commit(state, driver.run(schedule(state)))
    assert least <= (sum(map(taken, state.running)) - before) / steps / len(state.running) <= most
