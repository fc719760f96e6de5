"""Simulated answers beside those that they are drawn from: as many forwards, and about as many rows in each."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from dlstep import LLM
from dlstep.cli import main
from dlstep.core import Config, Request, SamplingParams, add, commit, schedule
from dlstep.simulate.costs import StepCost
from dlstep.simulate.replicas import Simulation
from dlstep.simulate.served import embedded_answers
from dlstep.simulate.work import MeasuredAnswer, SimulatedRequest, repeated_jobs, scripted_spec, scripted_strategy
from dlstep.strategies import load
from dlstep.tiny import problems

COUNT, LIMIT = 40, 64
ROWS = 0.12  # most that rows a forward may differ from measured ones


def decoded(llm: LLM) -> tuple[list[MeasuredAnswer], float]:
    """Answers of a model, one after the other, and the mean number of rows that its forwards fed."""
    engine, answers, rows, forwards = llm.engine, list[MeasuredAnswer](), 0, 0
    assert engine.tokenizer is not None
    for problem in problems(COUNT, seed=5):
        prompt = tuple(engine.tokenizer.encode(problem.prompt))
        state = add(engine.first, Request(0, prompt, SamplingParams(max_tokens=LIMIT, seed=0)))
        while not state.done:
            plan = schedule(state)
            rows, forwards = rows + sum(len(span.tokens) for span in plan.spans), forwards + 1
            state = commit(state, engine.driver.run(plan))
        sequence = state.finished[0]
        answers.append(MeasuredAnswer(len(prompt), len(sequence.answer), sequence.accounting.nfe))
    return answers, rows / forwards


@pytest.mark.parametrize("buffer_size", [1, 2, 4])
def test_simulated_answers_take_the_forwards_and_rows_of_measured_ones(buffer_size: int, report: Callable[[str], None]) -> None:
    answers, rows = decoded(LLM("tiny-bd", buffer_size=buffer_size, num_threads=1))
    config = Config(
        scripted_spec(), page_size=8, num_pages=4096, max_model_len=512, max_num_batched_tokens=4096, max_num_reqs=8
    )
    strategy = scripted_strategy(load("multi_bd"), {"block_size": 8, "buffer_size": buffer_size})
    jobs = [
        SimulatedRequest(1e3 * number, (3 + number,) * each.prompt, each.tokens, each.forwards, LIMIT)
        for number, each in enumerate(answers)
    ]
    course = Simulation(config, strategy, StepCost(0.001), 1).run(jobs)
    assert {fate.number: fate.forwards for fate in course.fates} == {n: each.forwards for n, each in enumerate(answers)}
    simulated = course.size.rows / course.size.forward
    report(f"buffer_size={buffer_size}: {simulated:.2f} rows a forward, measured {rows:.2f}")
    assert abs(simulated / rows - 1) <= ROWS


def test_answers_of_an_embedded_model_are_simulated_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = embedded_answers("tiny-bd", "multi_bd", {"buffer_size": 4}, LIMIT)
    assert len(found) == 200 and 5 < sum(each.forwards for each in found) / 200 < 9
    assert replace(found[0], forwards=1) == MeasuredAnswer(found[0].prompt, found[0].tokens, 1)
    assert main(["simulate", "--answers", "tiny-bd", "--replicas", "1", "--fewest", "50", "--requests", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["1", "50"]


def test_requests_of_a_measurement_come_again() -> None:
    """The arrivals are those that `dlstep bench serve` draws."""
    random, now, expected = Random(7), 0.0, list[float]()
    while (now := now + random.expovariate(5.0)) < 4.0:
        expected.append(now)
    jobs = repeated_jobs([MeasuredAnswer(3, 4, 2), MeasuredAnswer(6, 5, 3)], 5.0, 4.0, prompts=3, limit=9, seed=7)
    assert [job.at for job in jobs] == expected
    assert [len(job.prompt) for job in jobs[:6]] == [3, 6, 3, 3, 6, 3]
    assert jobs[0].prompt == jobs[3].prompt != jobs[2].prompt


def test_answers_are_as_they_say() -> None:
    with pytest.raises(ValueError, match="at least one prompt token"):
        MeasuredAnswer(0, 1, 1)
