"""Laws of simulated replicas: requests end once, as scripted, and the search finds the fewest replicas."""

import json
import subprocess
import sys
from dataclasses import fields, replace

import pytest
from hypothesis import given, strategies as st

from benchmarks.replicas import (
    SPEC,
    Figures,
    Job,
    MeasuredAnswer,
    Simulation,
    Traffic,
    figures,
    meets,
    scripted_strategy,
    sized,
    target_of,
)
from dlstep.core import Config

CONFIG = Config(SPEC, page_size=4, num_pages=400, max_model_len=64, max_num_batched_tokens=96, max_num_reqs=4)
STRATEGIES = {
    "multi_bd": {"block_size": 4, "buffer_size": 2},
    "dual_cache": {"block_size": 4},
    "d2f": {"block_size": 2, "buffer_size": 3},
}
ROW = Figures(**{field.name: 0 for field in fields(Figures)})
answers = st.builds(MeasuredAnswer, st.integers(1, 20), st.integers(0, 20), st.integers(1, 20))
prefixes = st.sampled_from([(0, 0, 1.0), (2, 12, 1.0), (3, 9, 2.0)])
workloads = st.builds(
    lambda drawn, prefix, limit, seed, count, rate: Traffic(tuple(drawn), limit, seed, *prefix).jobs(count, rate),
    st.lists(answers, min_size=1, max_size=5), prefixes, st.sampled_from([1, 20]), st.integers(0, 9), st.integers(1, 12),
    st.sampled_from([1.0, 20.0, 500.0]),
)  # fmt: skip


def simulation(replicas: int, name: str = "multi_bd", config: Config = CONFIG, forward: float = 0.01) -> Simulation:
    return Simulation(config, scripted_strategy(name, STRATEGIES[name]), replicas, forward, 0.0001)


@given(workloads, st.integers(1, 5))
def test_every_request_ends_once_in_order_of_time(jobs: list[Job], replicas: int) -> None:
    done = simulation(replicas).run(jobs)
    assert sorted(fate.number for fate in done.fates) == list(range(len(jobs)))
    for fate in done.fates:
        job = jobs[fate.number]
        assert fate.came == job.at <= fate.began < fate.ended
        assert fate.tokens == job.tokens and 0 <= fate.found <= len(job.prompt)
    ends = [fate.ended for fate in done.fates]
    assert ends == sorted(ends)
    assert simulation(replicas).run(jobs).fates == done.fates


@given(workloads, st.integers(1, 4))
def test_figures_are_a_direct_count(jobs: list[Job], replicas: int) -> None:
    done = simulation(replicas).run(jobs)
    row = figures(jobs, done)
    took = max(fate.ended for fate in done.fates) - jobs[0].at
    assert (row.requests, row.replicas) == (len(jobs), replicas)
    assert row.tokens_per_s == pytest.approx(sum(job.tokens for job in jobs) / took)
    assert 0 <= row.hit_rate <= 1 and row.latency_p50 <= row.latency_p95 <= row.latency_p99
    assert row.busy * took * replicas == pytest.approx(0.01 * done.forwards + 0.0001 * done.rows)


def test_deterministic_service_waits_as_theory_says() -> None:
    """M/D/1: one request at a time, each of one forward pass of 1 s; the mean wait is load / (2 - 2 load)."""
    config = replace(CONFIG, max_num_reqs=1)
    for load, seed in ((0.5, 0), (0.7, 1)):
        jobs = Traffic((MeasuredAnswer(1, 1, 1),), 1, seed).jobs(1500, load)
        fates = simulation(1, config=config, forward=1.0).run(jobs).fates
        mean = sum(fate.began - fate.came for fate in fates) / len(fates)
        assert mean == pytest.approx(load / (2 - 2 * load), rel=0.15)


@given(st.lists(st.sampled_from([500, 2000]), min_size=1, max_size=64))
def test_the_search_ends_at_a_number_that_meets_the_target_where_one_fewer_does_not(curve: list[int]) -> None:
    target = target_of("p95=1.0")
    rows = list(sized(lambda count: replace(ROW, replicas=count, latency_p95=curve[count - 1]), target, len(curve)))
    tried = {row.replicas: meets(row, target) for row in rows}
    assert len(tried) == len(rows) <= 2 * len(curve).bit_length()
    if not any(tried.values()):
        assert tried[len(curve)] is False
    else:
        answer = min(count for count, met in tried.items() if met)
        assert answer == 1 or tried[answer - 1] is False


def test_the_command_searches_for_replicas() -> None:
    command = [sys.executable, "-m", "benchmarks.replicas", "--json", "--target", "p50=0.2", "--rate", "400", "--fewest", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "replicas are the fewest that reach p50=0.2 s" in done.stderr
    rows = json.loads(done.stdout)
    assert min(row["replicas"] for row in rows if row["latency_p50"] <= 200) > 1
