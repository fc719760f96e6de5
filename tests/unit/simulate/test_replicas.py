"""Laws of simulated replicas: requests end once, and equal seeds agree."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, commit, init, schedule
from dlstep.core.lifecycle import add
from dlstep.core.plan import Samples
from dlstep.serve.router.placement import Candidate, Pages, bound, choose
from dlstep.simulate.costs import Size, StepCost, size_of
from dlstep.simulate.figures import figures
from dlstep.simulate.replicas import AHEAD, Chooser, Simulation
from dlstep.simulate.work import (
    SHARED_IDS,
    Beginnings,
    MeasuredAnswer,
    SamplesScript,
    SimulatedRequest,
    drawn_jobs,
    scripted_spec,
    scripted_strategy,
)
from dlstep.strategies import load

CONFIG = Config(scripted_spec(), page_size=4, num_pages=400, max_model_len=64, max_num_batched_tokens=96, max_num_reqs=4)
STRATEGIES = {
    "multi_bd": {"block_size": 4, "buffer_size": 2},
    "dual_cache": {"block_size": 4},
    "d2f": {"block_size": 2, "buffer_size": 3},
}
COST = StepCost(0.01, 0.0001, 0.0005, 1e-6)
answers = st.builds(MeasuredAnswer, st.integers(1, 20), st.integers(0, 20), st.integers(1, 20))
workloads = st.builds(
    drawn_jobs,
    st.lists(answers, min_size=1, max_size=5),
    st.integers(1, 12),
    st.sampled_from([1.0, 20.0, 500.0]),
    limit=st.sampled_from([1, 20]),
    seed=st.integers(0, 9),
    beginnings=st.sampled_from([Beginnings(), Beginnings(2, 12), Beginnings(3, 9, 2.0)]),
)


def simulation(replicas: int, name: str = "multi_bd", config: Config = CONFIG, cost: StepCost = COST) -> Simulation:
    return Simulation(config, scripted_strategy(load(name), STRATEGIES[name]), cost, replicas)


@given(workloads, st.integers(1, 5))
def test_every_request_ends_once_in_order_of_time(jobs: list[SimulatedRequest], replicas: int) -> None:
    course = simulation(replicas).run(jobs)
    assert sorted(fate.number for fate in course.fates) == list(range(len(jobs)))
    for fate in course.fates:
        job = jobs[fate.number]
        assert fate.came == job.at <= fate.began < fate.ended
        assert fate.tokens == job.tokens and 0 <= fate.replica < replicas
        assert 0 <= fate.found < len(job.prompt) + CONFIG.page_size and fate.found <= len(job.prompt)
    ends = [fate.ended for fate in course.fates]
    assert ends == sorted(ends)


@given(workloads, st.integers(1, 5))
def test_the_same_requests_have_the_same_course(jobs: list[SimulatedRequest], replicas: int) -> None:
    assert simulation(replicas).run(jobs) == simulation(replicas).run(jobs)


@pytest.mark.parametrize("name", STRATEGIES)
@given(answer=answers)
def test_a_request_alone_takes_the_sum_of_its_forwards(name: str, answer: MeasuredAnswer) -> None:
    (job,) = drawn_jobs([answer], 1, 1.0, limit=20, seed=3)
    strategy = scripted_strategy(load(name), STRATEGIES[name])
    state, script, sizes = add(init(CONFIG, strategy), job.request(0)), SamplesScript(job, 0), list[Size]()
    while not state.done:
        plan = schedule(state)
        sizes.append(size_of(plan))
        state = commit(state, Samples(plan, (script.rows(plan.spans[0]),)))
    (fate,) = simulation(3, name).run([job]).fates
    expected = sum(0.01 + 0.0001 * size.rows + 0.0005 + 1e-6 * size.context for size in sizes)
    assert fate.ended - job.at == pytest.approx(expected)
    assert fate.forwards == len(sizes)


@pytest.mark.parametrize("name", STRATEGIES)
@given(data=st.data(), replicas=st.integers(1, 2))
def test_answers_take_the_scripted_number_of_forward_passes(name: str, data: st.DataObject, replicas: int) -> None:
    """Where a strategy can: a forward for each block and for the prompt at least, and for each token at most."""
    blocks = STRATEGIES[name]["block_size"]
    jobs: list[SimulatedRequest] = []
    for number in range(data.draw(st.integers(1, 6))):
        prompt, tokens = data.draw(st.integers(1, 20)), data.draw(st.integers(8, 40))
        fewest = -(-(tokens + 1) // blocks) + 2
        forwards = data.draw(st.integers(min(fewest, tokens), tokens))
        jobs.append(
            SimulatedRequest(0.02 * number, (9 + number,) * prompt, tokens, forwards, data.draw(st.sampled_from([tokens, 42])))
        )
    fates = simulation(replicas, name).run(jobs).fates
    assert {fate.number: fate.forwards for fate in fates} == {number: job.forwards for number, job in enumerate(jobs)}


def slow_choice(sent: list[int], pages: list[Pages], room: int, keys: tuple[bytes, ...]) -> int | None:
    able = [Candidate(n, sent[n], pages[n].known(keys)) for n in range(len(sent)) if sent[n] < room]
    return choose(able, bound(sum(each.requests for each in able), len(able))) if able else None


@given(st.data(), st.integers(1, 6), st.integers(1, 6), st.integers(2, 30))
def test_the_quick_choice_is_the_servers(data: st.DataObject, replicas: int, most: int, room: int) -> None:
    chooser, sent, pages = Chooser(replicas, room, most), [0] * replicas, [Pages(most) for _ in range(replicas)]
    for _ in range(data.draw(st.integers(1, 60))):
        keys = data.draw(st.sampled_from([(), (b"a",), (b"a", b"b"), (b"a", b"c"), (b"d", b"e"), (b"f",), (b"g", b"h")]))
        expected = slow_choice(sent, pages, room, keys)
        assert chooser.chosen(keys) == expected
        busy = [number for number, count in enumerate(sent) if count]
        if expected is not None and data.draw(st.integers(0, 3)):
            chooser.assign(expected, keys)
            pages[expected].learn(keys)
            sent[expected] += 1
        elif busy:
            number = data.draw(st.sampled_from(busy))
            chooser.release(number)
            sent[number] -= 1


def test_shared_beginnings_are_found_as_often_as_they_come_again() -> None:
    """One replica, one request after the other: all but the first with a beginning find its 3 pages."""
    jobs = drawn_jobs([MeasuredAnswer(5, 4, 2)], 60, 0.01, limit=8, seed=1, beginnings=Beginnings(4, 12))
    firsts = {job.prompt[0] for job in jobs}
    assert len(firsts) == 4 and min(firsts) >= SHARED_IDS
    course = simulation(1).run(jobs)
    assert sum(fate.found for fate in course.fates) == (60 - 4) * 12
    counts = sorted((sum(job.prompt[0] == first for job in jobs) for first in firsts), reverse=True)
    assert counts[0] > 2 * counts[3]


def test_deterministic_service_waits_as_theory_says() -> None:
    """M/D/1: one request at a time, each of one forward of 1 s; the mean wait is load / (2 - 2 load)."""
    config = replace(CONFIG, max_num_reqs=1)
    for load_, seed in ((0.5, 0), (0.7, 1)):
        jobs = drawn_jobs([MeasuredAnswer(1, 1, 1)], 1500, load_, limit=1, seed=seed)
        fates = simulation(1, config=config, cost=StepCost(1.0)).run(jobs).fates
        mean = sum(fate.began - fate.came for fate in fates) / len(fates)
        assert mean == pytest.approx(load_ / (2 - 2 * load_), rel=0.15)
        assert {round(fate.ended - fate.began, 6) for fate in fates} == {1.0}


def test_more_replicas_serve_an_overload_faster() -> None:
    jobs = drawn_jobs([MeasuredAnswer(8, 12, 6)], 200, 1e6, limit=12, seed=0)
    speeds = [figures(jobs, simulation(count).run(jobs)).tokens_per_s for count in (1, 2, 4, 8)]
    for fewer, more in pairwise(speeds):
        assert 1.7 * fewer < more < 2.1 * fewer


def test_full_replicas_leave_requests_in_the_queue() -> None:
    room = CONFIG.max_num_reqs + AHEAD
    jobs = [SimulatedRequest(0.0, (9 + number,), 4, 2, 4) for number in range(room + 5)]
    course = simulation(1).run(jobs)
    assert [fate.number for fate in sorted(course.fates, key=lambda fate: (fate.began, fate.number))] == list(range(room + 5))
