"""Scored ids: laws of strategies that name some, and what the core says of ids that do not fit."""

import os
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Request, SpanSamples, add, commit, init, schedule
from dlstep.testing import ScriptedDriver, ShadowDriver
from dlstep.testing.laws import (
    LAWS,
    batch_is_its_members,
    functions,
    overrides,
    progress,
    spans_are_sound,
    traces,
    transparency,
)

from ..helpers.decoding import CONFIG, SPEC
from ..helpers.named_plans import PARAMS
from ..helpers.naming import Loyal, NamingCanvas, NamingGrid

# Those that could tell scored ids from none; `make full` holds the strategies to all.
FEW = (functions, spans_are_sound, progress, transparency, batch_is_its_members, traces, overrides)
CHOSEN = LAWS if os.environ.get("HYPOTHESIS_PROFILE") == "seeds" else FEW
CARRIERS = (NamingGrid(), NamingCanvas(), NamingCanvas(cache="none"))


@pytest.mark.parametrize("value", CARRIERS, ids=["grid", "canvas, dual", "canvas"])
@pytest.mark.parametrize("law", CHOSEN, ids=lambda law: law.__name__)
@given(data=st.data())
def test_law(law, value, data):
    law(value, data)


def rows_of(span):
    """Row of position p: token p, of probability 0.5; what is named has a probability of its position and place."""
    width = len(span.wanted.scored_ids) // len(span.wanted.sampled)
    ids = [(position + place / 10) / 100 for position in span.wanted.sampled for place in range(width)]
    return SpanSamples(span.wanted.sampled, (0.5,) * len(span.wanted.sampled), scored_probabilities=tuple(ids))


def spans_of(strategy, driver, count):
    """The first spans of a request."""
    state, found = add(init(CONFIG, strategy), Request(0, (1, 2, 3, 4), PARAMS)), []
    for _ in range(count):
        plan = schedule(state)
        found += plan.spans
        state = commit(state, driver.run(plan))
    return found


@pytest.mark.parametrize("carrier", [NamingGrid(4, 2), NamingCanvas(4)], ids=["grid", "canvas"])
def test_ids_are_scored_for_each_sampled_position_in_order(carrier):
    """The ids that a pass samples, which stay the same, are all scored in the next pass."""
    strategy = replace(carrier, rule=Loyal(1.0))
    first, second, third, *_ = (span for span in spans_of(strategy, ScriptedDriver(rows_of), 4) if span.wanted.sampled)
    assert first.wanted.scored_ids == (-1, -1) * len(first.wanted.sampled)
    known = [position for position in second.wanted.sampled if position in first.wanted.sampled]
    assert second.wanted.scored_ids[: 2 * len(known)] == tuple(each for position in known for each in (position, position + 1))
    assert second.wanted.scored_ids[2 * len(known) :] == (-1, -1) * (len(second.wanted.sampled) - len(known))
    assert len(third.wanted.scored_ids) == 2 * len(third.wanted.sampled)


def test_a_request_may_score_fewer_ids_than_others_but_not_more():
    own = replace(PARAMS, strategy_options={"names": False})
    state = add(init(CONFIG, NamingGrid(4, 2, rule=Loyal())), Request(0, (1, 2, 3, 4), PARAMS))
    state = add(state, Request(1, (1, 2, 3, 4), own))
    device = ShadowDriver(4, 64, SPEC)
    while not state.done:
        plan = schedule(state)
        assert all(
            len(span.wanted.scored_ids) == (2 * len(span.wanted.sampled) if span.who.id == 0 else 0) for span in plan.spans
        )
        state = commit(state, device.run(plan))
    assert {sequence.finish for sequence in state.finished.values()} == {"length"}
    more = replace(own, strategy_options={"names": True})
    refused = add(init(CONFIG, NamingGrid(4, 2, rule=Loyal(names=False))), Request(0, (1,), more)).finished[0]
    assert refused.finish == "rejected" and "scored=2" in refused.error
