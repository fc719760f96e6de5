"""The laws of a running `Decode`, which any strategy shows: ranks plan alike, and updates of steps that fail add up."""

import pytest
from hypothesis import given, strategies as st

from dlstep import strategies
from dlstep.core import Trace, init
from dlstep.engine.decode import Decode
from dlstep.testing.generators import cases, due
from dlstep.testing.harness import shadow
from dlstep.testing.sharing import MOST_TURNS, Fault, FaultyDriver, check_updates, histories

from ..helpers.leading import LeadingDriver

any_strategy = pytest.mark.parametrize("name", ["multi_bd", "dual_cache"])


@any_strategy
@given(data=st.data())
def test_ranks_make_the_same_plans(name, data):
    histories(strategies.load(name), data, LeadingDriver)


@any_strategy
@given(data=st.data())
def test_updates_of_steps_that_fail_add_up_to_the_outputs(name, data):
    case = data.draw(cases(strategies.load(name)))
    faults = frozenset(data.draw(st.lists(st.integers(0, 12), max_size=2)))
    steps, first, events = [], init(case.config, case.strategy), []
    decode = Decode(first, FaultyDriver(shadow(case.config, case.strategy), after=faults), record=events.append)
    seen = {}
    for number in range(MOST_TURNS):
        for request in case.arriving(number):
            decode.add(request)
        for request_id in due(case.aborts, number):
            decode.abort(request_id, "enough")
        for request_id in due(case.late_aborts, number)[-1:]:
            decode.fail(request_id, "broken")
        try:
            news = decode.step()
        except Fault:
            continue
        assert not decode.state.finished, "an ended request is not pruned"
        steps.append(news)
        seen |= {update.id: update.sequence for update in news if update.finish_info}
        if number >= max((*case.arrive, 0)) and decode.state.done:
            break
    assert set(seen) == {request.id for request in case.requests}
    check_updates(steps, seen)
    assert decode.state == Trace(first, tuple(events)).state, "the events are not what happened"
