"""The host cost of constraints is measured on requests that stay constrained and do equal work."""

from dataclasses import replace
from random import Random

import pytest

from benchmarks import host
from benchmarks.constraint import SCHEMA, measure_constraint, spec_of_script, under_masks
from benchmarks.host import STEPS, build
from benchmarks.scripts import SCRIPTS, unmasked
from dlstep.core import commit, schedule
from dlstep.text.constraints import compiled


def test_as_many_tokens_are_unmasked_as_without_a_constraint():
    script = replace(SCRIPTS["multi_bd"], spec=spec_of_script(SCRIPTS["multi_bd"]))
    automaton = compiled("json_schema", SCHEMA, script.spec)
    pace = []
    for constraint in (None, automaton):
        state = build(script, "prompt", 64, 4, constraint)
        chosen = script if constraint is None else replace(script, steady=under_masks(automaton, script.steady))
        driver = chosen.driver(Random(0))
        before = sum(map(unmasked, state.running))
        for _ in range(STEPS):
            state = commit(state, driver.run(schedule(state)))
        assert len(state.running) == 4, "an answer ended during the measurement"
        pace.append((sum(map(unmasked, state.running)) - before) / STEPS / 4)
    assert pace == pytest.approx([2.0, 2.0], abs=0.2)


def test_both_costs_are_measured(monkeypatch):
    monkeypatch.setattr(host, "REPETITIONS", 2)
    (row,) = measure_constraint("multi_bd", (1,), (1,))
    assert 0 < row["plain_us"] < row["constrained_us"]
