"""Scored ids: laws of strategies that list some, and requests that list fewer or more."""

import os
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Request, add, commit, init, schedule
from dlstep.testing import ShadowDriver
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
from ..unit.dlstep_kernels.profiles import up_to

# Laws that scored ids could break; `make full` checks all laws.
FEW = (functions, spans_are_sound, progress, transparency, batch_is_its_members, traces, overrides)
CHOSEN = LAWS if os.environ.get("HYPOTHESIS_PROFILE") == "seeds" else FEW
CARRIERS = (NamingGrid(), NamingCanvas(), NamingCanvas(cache="none"))


@pytest.mark.parametrize("value", CARRIERS, ids=["grid", "canvas, dual", "canvas"])
@pytest.mark.parametrize("law", CHOSEN, ids=lambda law: law.__name__)
@up_to(80)
@given(data=st.data())
def test_law(law, value, data):
    law(value, data)


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
