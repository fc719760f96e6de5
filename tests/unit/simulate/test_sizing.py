"""How many replicas a load needs: the search finds the fewest, and says so where no number suffices."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from math import log2

import pytest
from hypothesis import given, strategies as st

from dlstep.cli import main
from dlstep.simulate.costs import StepCost
from dlstep.simulate.figures import Figures, Fleet, Traffic
from dlstep.simulate.sizing import PERCENTILES, Target, alone, meets, parse_targets, sized
from dlstep.simulate.work import Answered, scripted_strategy
from dlstep.strategies import load

from .test_fleet import CONFIG, STRATEGIES

FLEET = Fleet(CONFIG, scripted_strategy(load("multi_bd"), STRATEGIES["multi_bd"]), StepCost(0.01, 0.0001))
TRAFFIC = Traffic((Answered(6, 12, 5), Answered(9, 16, 8)), 60.0, limit=20, fewest=150, seconds=1.0)
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
    target = (Target("p95", 1.0),)
    tried = list(sized(rows(lambda count: 2.0 if count < fewest else 1.0, counted), target, most))
    enough = [row.replicas for row in tried if meets(row, target)]
    assert (min(enough) if enough else None) == (fewest if fewest <= most else None)
    assert len(set(counted)) == len(counted) <= 2 * log2(most) + 2 and max(counted) <= most


@given(st.lists(st.sampled_from([0.5, 2.0]), min_size=1, max_size=64))
def test_whatever_the_curve_the_answer_meets_the_target_and_one_fewer_does_not(curve: list[float]) -> None:
    counted: list[int] = []
    target = (Target("p95", 1.0),)
    tried = {row.replicas: meets(row, target) for row in sized(rows(lambda n: curve[n - 1], counted), target, len(curve))}
    if not any(tried.values()):
        assert tried[len(curve)] is False
    else:
        answer = min(count for count, met in tried.items() if met)
        assert answer == 1 or tried[answer - 1] is False


def test_the_answer_is_that_of_trying_every_number() -> None:
    jobs = TRAFFIC.jobs(1)
    curve = {count: FLEET.figures(jobs, count) for count in range(1, 13)}
    idle = alone(FLEET, jobs)
    for percentile, field in PERCENTILES.items():
        assert getattr(idle, field) <= min(getattr(row, field) for row in curve.values()) + 1e-4
        for share in (1.02, 1.3, 2.0, 5.0):
            target = (Target(percentile, share * getattr(idle, field) / 1e3),)
            expected = next((count for count, row in curve.items() if meets(row, target)), None)
            tried = sized(lambda count: FLEET.figures(jobs, count), target, 12)
            assert min((row.replicas for row in tried if meets(row, target)), default=None) == expected


def test_a_total_rate_is_one_load_for_all_numbers_of_replicas() -> None:
    assert TRAFFIC.jobs(1) == TRAFFIC.jobs(7) and len(TRAFFIC.jobs(1)) == 150
    longer = replace(TRAFFIC, seconds=10.0).jobs(3)
    assert len(longer) == 600 and longer[-1].at == pytest.approx(10.0, rel=0.2)


def test_targets_are_parsed() -> None:
    assert parse_targets("p95=0.5") == (Target("p95", 0.5),)
    assert parse_targets("p50=.2, p99=3") == (Target("p50", 0.2), Target("p99", 3.0))


BASE = ["simulate", "--total_rate", "60", "--fewest", "150", "--seconds", "1"]


def test_the_command_answers_how_many_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--target", "p95=0.12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    tried = {int(line.split()[0]): float(line.split()[4]) for line in lines if line[:1].isdigit() and line.split()[1] == "150"}
    answer = min(count for count, p95 in tried.items() if p95 <= 120)
    assert answer > 1 and tried[answer - 1] > 120
    assert lines[-1].startswith(f"p95 <= 0.12 s with 60 requests a second (150 in all) takes {answer} replicas: p95 0.1")
    assert "; with one fewer p95 0." in lines[-1]
    assert main([*BASE, "--target", "p95=0.12", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["replicas"] == answer and told["total"] and {row["replicas"] for row in told["curve"]} == set(tried)
    assert main([*BASE, "--replicas", "[1,2]"]) == 0
    assert "60 requests a second in all" in capsys.readouterr().out


def test_the_command_says_that_no_number_suffices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--target", "p95=0.01"]) == 1
    assert "No number of replicas reaches p95 <= 0.01 s: a request that never waits for others takes p95 0." in (
        capsys.readouterr().out
    )
    assert main([*BASE, "--target", "p95=0.12", "--most_replicas", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["replicas"] is None
    assert main([*BASE, "--target", "p95=0.12", "--most_replicas", "1"]) == 1
    assert "No number of replicas up to 1 reaches p95 <= 0.12 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "p95=1"], "--target does nothing without --total_rate"),
        (["--seconds", "5"], "--seconds does nothing without --total_rate"),
        (["--total_rate", "5", "--most_replicas", "5"], "--most_replicas does nothing without --target"),
        (["--total_rate", "5", "--rate", "5"], "--rate does nothing beside --total_rate"),
        (["--total_rate", "5", "--target", "p95=1", "--replicas", "3"], "--replicas does nothing beside --target"),
        (["--total_rate", "0"], "--total_rate must be above 0"),
        *[
            (["--total_rate", "5", "--target", text], "--target takes seconds for p50, p95, p99, such as p95=0.5")
            for text in ("p95", "p95=0", "p95=-1", "p95=nan", "p90=1", "p95=1e3", "p95=1,", "95=1")
        ],
        (["--total_rate", "5", "--target", "p95=1,p95=2"], "--target names p95 twice"),
    ],
)
def test_targets_that_mean_nothing_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err
