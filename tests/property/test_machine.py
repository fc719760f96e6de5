"""Anything may happen in any order: arrivals, steps, aborts, retries, device losses, new processes. Nothing is lost."""

import pickle
from dataclasses import replace

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dlstep import strategies
from dlstep.core import abort, add, commit, init, rebuild, schedule
from dlstep.core.lifecycle import grow
from dlstep.core.trace import from_json, to_json
from dlstep.testing.generators import batches, hyperparameters, specs, tight
from dlstep.testing.harness import answered_alone, check_answer, check_ownership, shadow


class Engine(RuleBasedStateMachine):
    """An engine on a shadow device, and the requests that were given to it."""

    @initialize(data=st.data(), name=st.sampled_from(strategies.available()))
    def start(self, data, name):
        self.strategy = data.draw(hyperparameters(strategies.load(name)))
        spec = data.draw(specs(self.strategy))
        self.requests = data.draw(batches(self.strategy, most=6))
        self.config = data.draw(tight(spec, self.strategy, self.requests))
        self.state = init(self.config, self.strategy)
        self.device = shadow(self.config, self.strategy)
        self.arrived, self.gone, self.plan = 0, set(), None

    @precondition(lambda self: self.arrived < len(self.requests))
    @rule()
    def arrive(self):
        self.state = add(self.state, self.requests[self.arrived])
        self.arrived += 1

    @rule()
    def plan_now(self):
        self.plan = schedule(self.state)

    @precondition(lambda self: self.plan is not None)
    @rule(times=st.integers(1, 2))
    def run_the_plan(self, times):
        assert self.plan is not None
        answers = [self.device.run(self.plan) for _ in range(times)]
        assert answers[0] == answers[-1], "a repeated plan is answered differently"
        self.state = commit(self.state, answers[0])
        self.plan = None

    @rule(steps=st.integers(1, 8))
    def run_on(self, steps):
        self.plan = None
        for _ in range(steps):
            self.state = commit(self.state, self.device.run(schedule(self.state)))

    @rule(data=st.data())
    def abort_any(self, data):
        request_id = data.draw(st.integers(0, len(self.requests)))
        if self.state.find(request_id) is not None and self.state.finished.get(request_id) is None:
            self.gone.add(request_id)
        self.state = abort(self.state, request_id)

    @rule(pages=st.integers(-1, 20))
    def add_pages(self, pages):
        held = self.state.config.num_pages
        self.state = grow(self.state, held + pages)
        assert self.state.cache.available - max(0, pages) == replace(self.state.cache, num_pages=held).available

    @rule()
    def lose_the_device(self):
        self.state, self.plan, self.device = rebuild(self.state), None, shadow(self.config, self.strategy)

    @rule()
    def move_to_another_process(self):
        self.state = rebuild(from_json(to_json(pickle.loads(pickle.dumps(self.state)))))
        self.plan, self.device = None, shadow(self.config, self.strategy)

    @invariant()
    def nothing_is_lost(self):
        if self.__dict__.get("state") is not None:
            check_ownership(self.state)
            known = {*(s.request.id for s in (*self.state.running, *self.state.waiting)), *self.state.finished}
            assert known == {request.id for request in self.requests[: self.arrived]}

    def teardown(self):
        if self.__dict__.get("state") is None:
            return
        while not self.state.done:
            self.state = commit(self.state, self.device.run(schedule(self.state)))
        assert not len(self.state.cache.owners)
        for request in self.requests[: self.arrived]:
            check_answer(self.state, request)
            if request.id not in self.gone and self.strategy.exact:
                ours = self.state.finished[request.id]
                single = answered_alone(self.config.spec, self.strategy, request)
                if ours.finish != "rejected":  # a small engine may refuse what an ample one takes
                    assert (ours.answer, ours.finish, ours.steps) == (single.answer, single.finish, single.steps)


TestEngine = Engine.TestCase
TestEngine.settings = settings(settings.default, stateful_step_count=25)
