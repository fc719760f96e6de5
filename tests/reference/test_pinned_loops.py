"""Pinned tokens: every carrier against its slow loop, which is told of them by position."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from . import blockwise, dmax, dual_cache, edit, test_dmax, test_dual_cache, test_edit
from .engine import Case, Pair, compare, random_cases
from .models import EOS
from .test_blockwise import options as block_options
from .test_zoo import quota, threshold
from .zoo import Make, check_on_canvases, check_on_grids, random_pins

BLOCK = 4


def block_loop(name: str) -> Callable[..., list[int]]:
    def loop(network, prompt, limit, fields, pins=None):
        return blockwise.decode(network, prompt, limit, blockwise.Rules(**fields, from_prompt=name == "d2f"), pins)

    return loop


def edit_loop(network, prompt, limit, fields, pins=None):
    return edit.decode(network, prompt, limit, edit.Rules(**fields), pins)


def dmax_loop(network, prompt, limit, fields, pins=None):
    return dmax.decode(network, prompt, limit, dmax.Rules(**fields), pins)


def canvas_loop(network, prompt, limit, fields, pins=None):
    rule = fields.pop("rule", None)
    steps = {"steps_per_block": rule.steps_per_block} if rule else {}
    return dual_cache.decode(network, prompt, limit, dual_cache.Rules(**fields, **steps), pins)


CARRIERS: list[tuple[str, int, Callable[..., list[int]], Callable[[Random], dict[str, Any]]]] = [
    ("multi_bd", 0, block_loop("multi_bd"), block_options),
    ("multi_bd", 1, block_loop("multi_bd"), block_options),
    ("d2f", 0, block_loop("d2f"), block_options),
    ("multi_bd_edit", 0, edit_loop, test_edit.options),
    ("dmax", 0, dmax_loop, test_dmax.options),
    ("dual_cache", 0, canvas_loop, test_dual_cache.options),
    ("dual_cache", 1, canvas_loop, test_dual_cache.options),
]


def pinned(case: Case) -> Case:
    """The case with some tokens pinned."""
    return replace(case, pins=random_pins(Random(case.number), len(case.prompt), case.limit))


@pytest.mark.parametrize(("name", "shift", "loop", "options"), CARRIERS, ids=[f"{name}-{n}" for name, n, *_ in CARRIERS])
@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.stress)])
def test_answers_around_pins_are_those_of_the_loop(pairs: list[Pair], count, name, shift, loop, options, report) -> None:
    cases = [pinned(case) for case in random_cases(31 + shift, count * 4 // 3, BLOCK, options)]
    tally = compare(pairs, cases, name, loop, shift)
    report(f"{name} with pins, shift {shift}: {tally}")
    assert tally.compared > count and tally.stopped > count // 10
    assert sum(EOS in case.pins.values() for case in cases) > count // 10


@pytest.mark.parametrize("make", [threshold, quota], ids=lambda make: make.__name__)
def test_rules_around_pins_take_as_many_forwards_as_the_loop(make: Make) -> None:
    check_on_grids(make, pinned=True)
    check_on_canvases(make, pinned=True)
