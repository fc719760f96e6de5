"""Commits are prepared while the driver works, except where that would call user code."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from dlstep.core import (
    Config,
    OverlappingDriver,
    Plan,
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


@dataclass
class Pending:
    """Samples that a shadow device computes once they are waited for."""

    driver: "Overlapping"
    plan: Plan

    def wait(self):
        self.driver.order.append("wait")
        return self.driver.run(self.plan)


class Overlapping:
    """A shadow device that records when it starts and when it is waited for."""

    def __init__(self, state):
        self.device, self.order = shadow(state.config, state.strategy), []

    def run(self, plan):
        return self.device.run(plan)

    def start(self, plan, owner):
        self.order.append("start")
        return Pending(self, plan)


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
    driver = Overlapping(state)
    used = []

    def prepares(state, plan):
        driver.order.append("prepare")
        return prepare(state, plan)

    def commits(state, samples, prepared=None):
        used.append(prepared is not None)
        return commit(state, samples, prepared)

    monkeypatch.setattr(decode_module, "prepare", prepares)
    monkeypatch.setattr(decode_module, "commit", commits)
    blocking = SimpleNamespace(run=driver.run)
    decode = Decode(state, driver if overlaps else blocking)
    assert isinstance(driver, OverlappingDriver) and not isinstance(blocking, OverlappingDriver)
    while not decode.state.done:
        decode.step()
    assert used.count(True) > used.count(False)
    assert driver.order == (["start", "prepare", "wait"] if overlaps else ["prepare"]) * len(used)


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
