"""Laws of simulated replicas: requests end once, as scripted, and the search finds the fewest replicas."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from benchmarks.replicas import (
    AHEAD,
    SHARED_IDS,
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
from dlstep import LLM
from dlstep.core import Config, Request, SamplingParams, add, commit, schedule
from dlstep.tiny import problems

CONFIG = Config(SPEC, page_size=4, num_pages=400, max_model_len=64, max_num_batched_tokens=96, max_num_reqs=4)
STRATEGIES = {
    "multi_bd": {"block_size": 4, "buffer_size": 2},
    "dual_cache": {"block_size": 4},
    "d2f": {"block_size": 2, "buffer_size": 3},
}
ROW = Figures(**{field.name: 0 for field in fields(Figures)})
MEASURED = 40  # answers of the embedded model
ROWS = 0.12  # most that rows per forward pass may differ from measured ones
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


@pytest.mark.parametrize("name", STRATEGIES)
@given(data=st.data(), replicas=st.integers(1, 2))
def test_answers_take_the_scripted_number_of_forward_passes(name: str, data: st.DataObject, replicas: int) -> None:
    """Where a strategy can: a forward pass for each block and for the prompt at least, and for each token at most."""
    blocks = STRATEGIES[name]["block_size"]
    jobs: list[Job] = []
    for number in range(data.draw(st.integers(1, 6))):
        prompt, tokens = data.draw(st.integers(1, 20)), data.draw(st.integers(8, 40))
        fewest = -(-(tokens + 1) // blocks) + 2
        forwards = data.draw(st.integers(min(fewest, tokens), tokens))
        jobs.append(Job(0.02 * number, (9 + number,) * prompt, tokens, forwards, data.draw(st.sampled_from([tokens, 42]))))
    fates = simulation(replicas, name).run(jobs).fates
    assert {fate.number: fate.forwards for fate in fates} == {number: job.forwards for number, job in enumerate(jobs)}


def test_replicas_find_shared_prefixes_in_their_pages() -> None:
    """One replica, one request after the other: all but the first with a prefix find its 3 pages."""
    jobs = Traffic((MeasuredAnswer(5, 4, 2),), 8, 1, 4, 12).jobs(60, 0.01)
    firsts = {job.prompt[0] for job in jobs}
    assert len(firsts) == 4 and min(firsts) >= SHARED_IDS
    assert sum(fate.found for fate in simulation(1).run(jobs).fates) == (60 - 4) * 12


def test_deterministic_service_waits_as_theory_says() -> None:
    """M/D/1: one request at a time, each of one forward pass of 1 s; the mean wait is load / (2 - 2 load)."""
    config = replace(CONFIG, max_num_reqs=1)
    for load, seed in ((0.5, 0), (0.7, 1)):
        jobs = Traffic((MeasuredAnswer(1, 1, 1),), 1, seed).jobs(1500, load)
        fates = simulation(1, config=config, forward=1.0).run(jobs).fates
        mean = sum(fate.began - fate.came for fate in fates) / len(fates)
        assert mean == pytest.approx(load / (2 - 2 * load), rel=0.15)


def test_more_replicas_serve_an_overload_faster() -> None:
    jobs = Traffic((MeasuredAnswer(8, 12, 6),), 12).jobs(200, 1e6)
    speeds = [figures(jobs, simulation(count).run(jobs)).tokens_per_s for count in (1, 2, 4, 8)]
    for fewer, more in pairwise(speeds):
        assert 1.7 * fewer < more < 2.1 * fewer


def test_full_replicas_leave_requests_in_the_queue() -> None:
    count = CONFIG.max_num_reqs + AHEAD + 5
    fates = simulation(1).run([Job(0.0, (9 + number,), 4, 2, 4) for number in range(count)]).fates
    assert [fate.number for fate in sorted(fates, key=lambda fate: (fate.began, fate.number))] == list(range(count))


@pytest.mark.parametrize("buffer_size", [1, 4])
def test_scripted_answers_take_the_forwards_and_rows_of_measured_ones(buffer_size: int, report: Callable[[str], None]) -> None:
    engine, jobs, rows = LLM("tiny-bd", buffer_size=buffer_size, num_threads=1).engine, list[Job](), 0
    assert engine.tokenizer is not None
    for number, problem in enumerate(problems(MEASURED, seed=5)):
        prompt = tuple(engine.tokenizer.encode(problem.prompt))
        state = add(engine.first, Request(0, prompt, SamplingParams(max_tokens=64, seed=0)))
        while not state.done:
            plan = schedule(state)
            rows += sum(len(span.rows.tokens) for span in plan.spans)
            state = commit(state, engine.driver.run(plan))
        sequence = state.finished[0]
        jobs.append(Job(1e3 * number, (3 + number,) * len(prompt), len(sequence.answer), sequence.accounting.nfe, 64))
    config = Config(SPEC, page_size=8, num_pages=4096, max_model_len=512, max_num_batched_tokens=4096, max_num_reqs=8)
    strategy = scripted_strategy("multi_bd", {"block_size": 8, "buffer_size": buffer_size})
    done = Simulation(config, strategy, 1, 0.001).run(jobs)
    assert [fate.forwards for fate in done.fates] == [job.forwards for job in jobs]
    report(f"buffer_size={buffer_size}: {done.rows / done.forwards:.2f} rows a forward, measured {rows / done.forwards:.2f}")
    assert abs(done.rows / rows - 1) <= ROWS


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


def test_a_target_names_a_percentile() -> None:
    with pytest.raises(ValueError, match="p50, p95, p99"):
        target_of("p90=1")


def test_the_command_searches_for_replicas() -> None:
    command = [sys.executable, "-m", "benchmarks.replicas", "--json", "--target", "p50=0.2", "--rate", "400", "--fewest", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "replicas are the fewest that reach p50=0.2 s" in done.stderr
    rows = json.loads(done.stdout)
    assert min(row["replicas"] for row in rows if row["latency_p50"] <= 200) > 1
