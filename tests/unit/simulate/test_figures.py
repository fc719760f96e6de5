"""Figures of simulated replicas."""

import pytest
from hypothesis import example, given, strategies as st

from dlstep.core import Config
from dlstep.simulate.costs import StepCost
from dlstep.simulate.figures import SimulatedReplicas, Traffic, curve, figures
from dlstep.simulate.work import MeasuredAnswer, SimulatedRequest, scripted_spec, scripted_strategy
from dlstep.strategies import load

from .test_replicas import STRATEGIES, simulation, workloads

CONFIG = Config(scripted_spec(), page_size=4, num_pages=400, max_model_len=64, max_num_batched_tokens=96, max_num_reqs=4)
COST = StepCost(0.01, 0.0001, 0.0005, 1e-6)
answers = st.builds(MeasuredAnswer, st.integers(1, 20), st.integers(0, 20), st.integers(1, 20))


@example([SimulatedRequest(0.1442910641095092, (3,), 0, 1, 1)], 1)  # always busy, and rounded up
@given(workloads, st.integers(1, 4))
def test_figures_are_a_direct_count(jobs: list[SimulatedRequest], replicas: int) -> None:
    made = simulation(replicas)
    course = made.run(jobs)
    row = figures(jobs, course)
    took = max(fate.ended for fate in course.fates) - jobs[0].at
    assert row.requests == len(jobs) and row.replicas == replicas
    assert row.tokens_per_s == pytest.approx(sum(job.tokens for job in jobs) / took)
    assert row.hit_rate == pytest.approx(sum(fate.found for fate in course.fates) / sum(len(job.prompt) for job in jobs))
    assert 0 <= row.hit_rate <= 1 and 0 < row.busy <= 1 + 1e-9
    assert row.queue_p50 <= row.latency_p50 <= row.latency_p95 <= row.latency_p99
    size = course.size
    seconds = 0.01 * size.forward + 0.0001 * size.rows + 0.0005 * size.requests + 1e-6 * size.context
    assert sum(course.busy) == pytest.approx(seconds)


def test_a_curve_grows_its_load_with_its_replicas() -> None:
    simulated = SimulatedReplicas(CONFIG, scripted_strategy(load("multi_bd"), STRATEGIES["multi_bd"]), COST)
    traffic = Traffic((MeasuredAnswer(5, 10, 4),), rate=2.0, each=50, limit=10, fewest=80)
    one, three = curve(simulated, traffic, (1, 3))
    assert (one.requests, three.requests) == (80, 150)
    assert three.tokens_per_s == pytest.approx(3 * one.tokens_per_s, rel=0.35)
