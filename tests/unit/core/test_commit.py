"""Commits are prepared while the driver works, except where that would call user code."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dlstep.core import (
    Config,
    OverlappingDriver,
    Request,
    SamplingParams,
    Spec,
    add,
    commit,
    init,
    prepare,
    schedule,
)
from dlstep.engine import decode as decode_module
from dlstep.engine.decode import Decode
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.harness import shadow

SPEC = Spec(eos_ids=(1,), mask_id=2, vocab_size=16)


def crowded():
    """Return a state of two requests that need more pages than it has: the younger one is preempted."""
    config = Config(SPEC, page_size=4, num_pages=7, max_model_len=24, max_num_batched_tokens=64, max_num_reqs=2)
    state = init(config, MultiBD(4, 2))
    for number in range(2):
        state = add(state, Request(number, (3, 4, 5), SamplingParams(max_tokens=17, ignore_eos=True)))
    return state


def test_every_commit_is_prepared_unless_that_calls_user_code():
    state = crowded()
    device, prepared, preempting = shadow(state.config, state.strategy), 0, 0
    while not state.done:
        plan = schedule(state)
        ready = prepare(state, plan)
        assert (ready is None) == bool(plan.preemptions)
        prepared, preempting = prepared + (ready is not None), preempting + bool(plan.preemptions)
        samples = device.run(plan)
        after = commit(state, samples, ready)
        assert after == commit(state, samples)
        state = after
    assert prepared and preempting


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_decode_prepares_while_the_driver_works(overlaps, monkeypatch):
    state = crowded()
    device, order, used = shadow(state.config, state.strategy), [], []

    def start(plan, owner):
        order.append("start")
        return SimpleNamespace(wait=lambda: (order.append("wait"), device.run(plan))[1])

    def prepares(state, plan):
        order.append("prepare")
        return prepare(state, plan)

    def commits(state, samples, prepared=None):
        used.append(prepared is not None)
        return commit(state, samples, prepared)

    monkeypatch.setattr(decode_module, "prepare", prepares)
    monkeypatch.setattr(decode_module, "commit", commits)
    driver = SimpleNamespace(run=device.run, **{"start": start} if overlaps else {})
    decode = Decode(state, driver)
    assert isinstance(driver, OverlappingDriver) == overlaps
    while not decode.state.done:
        decode.step()
    assert used.count(True) > used.count(False)
    assert order == (["start", "prepare", "wait"] if overlaps else ["prepare"]) * len(used)


def test_what_was_prepared_for_another_plan_or_state_is_not_used():
    state = crowded()
    plan = schedule(state)
    samples = shadow(state.config, state.strategy).run(plan)
    wanted = commit(state, samples)
    ready = prepare(state, plan)
    assert commit(state, samples, ready) == wanted
    assert ready.state is state and ready.plan is plan
    for stale in (replace(ready, plan=replace(plan), running=[]), replace(ready, state=replace(state), running=[])):
        assert commit(state, samples, stale) == wanted
