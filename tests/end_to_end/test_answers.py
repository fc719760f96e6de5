"""The embedded models, end to end: right answers, and the same ones whatever the engine is short of."""

import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from dlstep import LLM, Output, SamplingParams, Thresholds, tiny

MODELS = ("tiny-bd", "tiny-d2f")
LIMIT = SamplingParams(max_tokens=64)
PROBLEMS = 24


@cache
def prompts(count: int) -> tuple[str, ...]:
    """Prompts of held-out problems."""
    return tuple(problem.prompt for problem in tiny.problems(count, seed=11))


def tokens(outputs: list[Output]) -> list[tuple[int, ...]]:
    """What was answered."""
    return [output.token_ids for output in outputs]


@cache
def expected(model: str) -> list[tuple[int, ...]]:
    """Answers of an engine in which nothing is short and nothing shared, one request at a time."""
    llm = LLM(model, enable_prefix_caching=False, max_num_reqs=1)
    return [llm.generate(prompt, LIMIT, progress=False)[0].token_ids for prompt in prompts(PROBLEMS)]


def least(page_size: int, length: int) -> int:
    """The fewest pages that hold one request of `length`, whose last block of 8 may reach past it."""
    return -(-(length + 7) // page_size)


ENGINES = {
    "batch 3": {"max_num_reqs": 3},
    "batch 8": {"max_num_reqs": 8},
    "batch 8, no prefix cache": {"max_num_reqs": 8, "enable_prefix_caching": False},
    "least pages": {"max_num_reqs": 8, "max_model_len": 128, "page_size": 4, "num_pages": least(4, 128)},
    "few pages": {"max_num_reqs": 8, "max_model_len": 128, "page_size": 4, "num_pages": 2 * least(4, 128)},
    "large pages": {"max_num_reqs": 8, "max_model_len": 128, "page_size": 32, "num_pages": 20},
    "few rows": {"max_num_reqs": 8, "max_num_batched_tokens": 64},
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("engine", ENGINES)
def test_answers_do_not_depend_on_the_engine(model: str, engine: str) -> None:
    got = LLM(model, **ENGINES[engine]).generate(list(prompts(PROBLEMS)), LIMIT, progress=False)
    assert tokens(got) == expected(model)


@pytest.mark.parametrize("model", MODELS)
def test_a_prompt_in_pieces_is_a_prompt(model: str) -> None:
    if model == "tiny-d2f":
        pytest.skip("d2f feeds a prompt at once: its prompt is one group")
    llm = LLM(model, max_num_batched_tokens=33, buffer_size=2, max_num_reqs=1, enable_prefix_caching=False)
    whole = LLM(model, buffer_size=2, max_num_reqs=1, enable_prefix_caching=False)
    long = ["".join(prompts(4)) + prompt for prompt in prompts(6)]
    outputs = llm.generate(long, LIMIT, progress=False)
    reference = whole.generate(long, LIMIT, progress=False)
    assert tokens(outputs) == tokens(reference)
    assert all(one.nfe > two.nfe and one.steps == two.steps for one, two in zip(outputs, reference, strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_a_second_turn_finds_the_first(model: str) -> None:
    llm = LLM(model, page_size=4)
    session = llm.session()
    first = session.submit(prompts(1)[0], LIMIT)
    session.run()
    talk = prompts(1)[0] + session.output(first).text + prompts(2)[1]
    second = session.submit(talk, LIMIT)
    (admission,) = session.plan.admissions
    positions = 4 * len(admission.shared)
    if model == "tiny-bd":  # pages of the answer are found too
        sequence = session.state.finished[first]
        assert positions > len(sequence.request.prompt) - 8
    else:  # another prompt is another group, so that every key and value differs
        assert not positions
    session.run()
    cold = LLM(model, page_size=4, enable_prefix_caching=False)
    assert session.output(second).token_ids == cold.generate(talk, LIMIT, progress=False)[0].token_ids


SCRIPT = """
import pickle, sys
from dlstep import LLM, Session, Trace
llm = LLM({model!r}, max_num_reqs=3)
source = Trace.load({path!r}) if {path!r}.endswith("jsonl") else pickle.load(open({path!r}, "rb"))
session = Session.resume(llm, source)
state = session.run()
print([state.finished[key].answer for key in sorted(state.finished)])
"""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["trace", "pickle"])
def test_a_saved_decode_goes_on_in_another_process(model: str, kind: str, tmp_path: Path) -> None:
    session = LLM(model, max_num_reqs=3).session()
    for prompt in prompts(5):
        session.submit(prompt, LIMIT)
    for _ in range(6):
        session.step()
    path = tmp_path / ("decode.jsonl" if kind == "trace" else "state.pickle")
    if kind == "trace":
        session.trace.save(path)
    else:
        path.write_bytes(pickle.dumps(session.state))
    script = SCRIPT.format(model=model, path=str(path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == str(expected(model)[:5])


@pytest.mark.parametrize("model", MODELS)
def test_a_fork_and_its_origin_answer_the_same(model: str) -> None:
    session = LLM(model).session()
    numbers = [session.submit(prompt, LIMIT) for prompt in prompts(4)]
    session.step()
    session.step()
    branch = session.fork()
    branch.step()
    session.step()
    session.back(2)
    ends = [each.run() for each in (session, branch)]
    for state in ends:
        assert [state.finished[number].answer for number in numbers] == expected(model)[:4]


@pytest.mark.parametrize("model", MODELS)
def test_an_engine_that_was_used_answers_like_a_new_one(model: str) -> None:
    used = LLM(model, buffer_size=1)
    questions = [problem.prompt for problem in tiny.problems(64, seed=21)]
    for accept in (0.9, 0.5, 0.9):
        limits = SamplingParams(max_tokens=64, thresholds=Thresholds(accept_threshold=accept))
        fresh = LLM(model, buffer_size=1).generate(questions, limits, progress=False)
        assert tokens(used.generate(questions, limits, progress=False)) == tokens(fresh)
