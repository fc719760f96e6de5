"""Blocks and canvases against loops that compute everything anew, or splice keys and values by hand."""

from dataclasses import replace
from random import Random

import pytest

from .engine import compare, random_cases
from .loops import BLOCK, OPTIONS, loop_of
from .models import EOS
from .zoo import random_pins

ONE_SHIFT = {"multi_bd_edit": 0, "dmax": 0, "fast_dllm_v2": 1}
CASES = [(name, shift) for name in OPTIONS for shift in (0, 1) if ONE_SHIFT.get(name, shift) == shift]
PINNED = [case for case in CASES if case[0] not in ("fast_dllm_v2", "sliding") and case != ("d2f", 1)]
counts = pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.stress)])


@pytest.mark.parametrize("name, shift", CASES)
@counts
def test_answers_are_those_of_the_loop(pairs, count, name, shift, report):
    tally = compare(pairs, random_cases(3 + shift, count, BLOCK, OPTIONS[name]), name, loop_of(name), shift)
    report(f"{name}, shift {shift}: {tally}")
    assert tally.compared > 2 * count // 3 and tally.stopped > count // 10


@pytest.mark.parametrize("name, shift", PINNED)
@counts
def test_answers_around_pins_are_those_of_the_loop(pairs, count, name, shift, report):
    cases = [
        replace(case, pins=random_pins(Random(case.number), len(case.prompt), case.limit))
        for case in random_cases(31 + shift, count * 4 // 3, BLOCK, OPTIONS[name])
    ]
    tally = compare(pairs, cases, name, loop_of(name), shift)
    report(f"{name} with pins, shift {shift}: {tally}")
    assert tally.compared > count and tally.stopped > count // 10
    assert sum(EOS in case.pins.values() for case in cases) > count // 10
