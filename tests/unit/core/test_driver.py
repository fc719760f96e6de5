"""A decode prepares commits while an overlapping driver works, except where that would call user code."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlstep.core import Config, Plan, Request, Samples, SamplingParams, Spec, State, add, commit, init, prepare, schedule
from dlstep.core.driver import OverlappingDriver, run_prepared
from dlstep.engine import decode as decode_module
from dlstep.engine.decode import Decode
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.harness import shadow

SPEC = Spec(eos_ids=(1,), mask_id=2, vocab_size=16)


class Overlapping:
    """A shadow device that records when its caller works."""

    def __init__(self, state: State) -> None:
        self.device, self.order = shadow(state.config, state.strategy), list[str]()

    def run(self, plan: Plan) -> Samples:
        self.order.append("run")
        return self.device.run(plan)

    def run_overlapped(self, plan: Plan, meanwhile: Callable[[], None]) -> Samples:
        self.order.append("submit")
        meanwhile()
        self.order.append("worked")
        self.order.append("wait")
        return self.device.run(plan)


def crowded() -> State:
    """Return a state of two requests that need more pages than it has: the younger one is preempted."""
    config = Config(SPEC, page_size=4, num_pages=7, max_model_len=24, max_num_batched_tokens=64, max_num_reqs=2)
    state = init(config, MultiBD(4, 2))
    for number in range(2):
        state = add(state, Request(number, (3, 4, 5), SamplingParams(max_tokens=17, ignore_eos=True)))
    return state


def test_every_commit_is_prepared_during_the_pass_unless_it_calls_user_code() -> None:
    state = crowded()
    driver, prepared, preempting = Overlapping(state), 0, 0
    while not state.done:
        plan = schedule(state)
        samples, ready = run_prepared(driver.run_overlapped, state, plan)
        assert (ready is None) == bool(plan.preemptions)
        if ready is not None:
            assert ready.state is state and ready.plan is plan
        prepared, preempting = prepared + (ready is not None), preempting + bool(plan.preemptions)
        state = commit(state, samples, ready)
    assert prepared and preempting
    assert driver.order == ["submit", "worked", "wait"] * (prepared + preempting)


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_decode_prepares_while_the_driver_works_if_it_can(overlaps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    state = crowded()
    driver = Overlapping(state)
    used: list[bool] = []

    def commits(state: State, samples: Samples, prepared: object = None) -> State:
        used.append(prepared is not None)
        return commit(state, samples, prepared)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(decode_module, "commit", commits)
    decode = Decode(state, driver if overlaps else driver.device)
    assert isinstance(driver, OverlappingDriver) and not isinstance(driver.device, OverlappingDriver)
    while not decode.state.done:
        decode.step()
    assert used.count(True) > used.count(False) if overlaps else not any(used)


def test_what_was_prepared_for_another_plan_or_state_is_not_used() -> None:
    state = crowded()
    plan = schedule(state)
    samples = shadow(state.config, state.strategy).run(plan)
    wanted = commit(state, samples)
    ready = prepare(state, plan)
    assert commit(state, samples, ready) == wanted
    for stale in (replace(ready, plan=replace(plan), running=[]), replace(ready, state=replace(state), running=[])):
        assert commit(state, samples, stale) == wanted


def test_nothing_is_prepared_by_a_driver_that_never_calls_its_caller() -> None:
    state = crowded()
    device = shadow(state.config, state.strategy)
    assert run_prepared(lambda plan, meanwhile: device.run(plan), state, schedule(state))[1] is None
