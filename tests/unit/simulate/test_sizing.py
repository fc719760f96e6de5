"""How many replicas a load needs: the search finds the fewest, and says so where no number suffices."""

from collections.abc import Callable
from dataclasses import fields, replace
from math import log2

import pytest
from hypothesis import given, strategies as st

from dlstep.simulate.costs import StepCost
from dlstep.simulate.figures import Figures, SimulatedReplicas, Traffic
from dlstep.simulate.sizing import PERCENTILES, LatencyTarget, alone, meets, parse_targets, sized
from dlstep.simulate.work import MeasuredAnswer, scripted_strategy
from dlstep.strategies import load

from .test_replicas import CONFIG, STRATEGIES

SIMULATED = SimulatedReplicas(CONFIG, scripted_strategy(load("multi_bd"), STRATEGIES["multi_bd"]), StepCost(0.01, 0.0001))
TRAFFIC = Traffic((MeasuredAnswer(6, 12, 5), MeasuredAnswer(9, 16, 8)), 60.0, limit=20, fewest=150, seconds=1.0)
ROW = Figures(**{field.name: 0 for field in fields(Figures)})


def rows(latency: Callable[[int], float], counted: list[int]) -> Callable[[int], Figures]:
    """Figures whose 95 % are a function of the replicas, in seconds."""

    def of(count: int) -> Figures:
        counted.append(count)
        return replace(ROW, replicas=count, latency_p95=1e3 * latency(count))

    return of


@given(st.integers(1, 2000), st.integers(1, 1000))
def test_the_search_finds_the_fewest_replicas_and_tries_few(fewest: int, most: int) -> None:
    counted: list[int] = []
    target = (LatencyTarget("p95", 1.0),)
    tried = list(sized(rows(lambda count: 2.0 if count < fewest else 1.0, counted), target, most))
    enough = [row.replicas for row in tried if meets(row, target)]
    assert (min(enough) if enough else None) == (fewest if fewest <= most else None)
    assert len(set(counted)) == len(counted) <= 2 * log2(most) + 2 and max(counted) <= most


@given(st.lists(st.sampled_from([0.5, 2.0]), min_size=1, max_size=64))
def test_whatever_the_curve_the_answer_meets_the_target_and_one_fewer_does_not(curve: list[float]) -> None:
    counted: list[int] = []
    target = (LatencyTarget("p95", 1.0),)
    tried = {row.replicas: meets(row, target) for row in sized(rows(lambda n: curve[n - 1], counted), target, len(curve))}
    if not any(tried.values()):
        assert tried[len(curve)] is False
    else:
        answer = min(count for count, met in tried.items() if met)
        assert answer == 1 or tried[answer - 1] is False


def test_the_answer_is_that_of_trying_every_number() -> None:
    jobs = TRAFFIC.jobs(1)
    curve = {count: SIMULATED.figures(jobs, count) for count in range(1, 13)}
    idle = alone(SIMULATED, jobs)
    for percentile, field in PERCENTILES.items():
        assert getattr(idle, field) <= min(getattr(row, field) for row in curve.values()) + 1e-4
        for share in (1.02, 1.3, 2.0, 5.0):
            target = (LatencyTarget(percentile, share * getattr(idle, field) / 1e3),)
            expected = next((count for count, row in curve.items() if meets(row, target)), None)
            tried = sized(lambda count: SIMULATED.figures(jobs, count), target, 12)
            assert min((row.replicas for row in tried if meets(row, target)), default=None) == expected


def test_a_total_rate_is_one_load_for_all_numbers_of_replicas() -> None:
    assert TRAFFIC.jobs(1) == TRAFFIC.jobs(7) and len(TRAFFIC.jobs(1)) == 150
    longer = replace(TRAFFIC, seconds=10.0).jobs(3)
    assert len(longer) == 600 and longer[-1].at == pytest.approx(10.0, rel=0.2)


def test_targets_are_parsed() -> None:
    assert parse_targets("p95=0.5") == (LatencyTarget("p95", 0.5),)
    assert parse_targets("p50=.2, p99=3") == (LatencyTarget("p50", 0.2), LatencyTarget("p99", 3.0))
