"""Recorded trajectories, scored again: under unchanged weights, the recorded plain log-probabilities come back."""

# What a request did not ask for is None.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from dlstep import LLM, SamplingParams, StepMap, examples, strategies, tiny
from dlstep.core import Refused, init
from dlstep.engine.trajectories import trajectory_likelihoods
from dlstep.testing.generators import ample, cases
from dlstep.testing.harness import run_case, shadow

PROMPTS = [problem.prompt for problem in tiny.problems(3)]
ENGINES = [
    {"model": "tiny-llada"},
    {"model": "tiny-llada", "rule": "remdm", "cache": "none"},
    {"model": "tiny-bd"},
    {"model": "tiny-edit"},
    {"model": "tiny-edit", "decoding_strategy": "dmax"},
    {"model": "tiny-fdv2"},
    {"model": "tiny-d2f"},
    {"model": "tiny-canvas"},
    {"model": "tiny-joint"},
    {"model": "tiny-joint", "decoding_strategy": "autoregressive"},
    {"model": "tiny-joint", "decoding_strategy": "self_speculation"},
]


def recorded_logs(step_map):
    return [change.plain_log_probability for change in step_map.changes if change.plain_log_probability is not None]


@pytest.mark.parametrize("name", strategies.available())
@given(data=st.data())
def test_every_strategy_repeats_its_passes(name, data):
    """On a device whose samples depend on all that a row sees."""
    run = run_case(data.draw(cases(strategies.load(name), aborts=False)))
    spec, asked = run.case.config.spec, [each for each in run.state.finished.values() if each.request.params.step_map]
    config = ample(spec)
    turn = SimpleNamespace(run=lambda task: task())
    engine = SimpleNamespace(first=init(config, run.case.strategy), driver=shadow(config, run.case.strategy), turn=turn)
    found = trajectory_likelihoods(engine, asked)
    for sequence, own in zip(asked, found, strict=True):
        expected = [change.plain_log_probability for each in reversed([*sequence.passes]) for change in each.changes]
        assert own.log_probabilities == pytest.approx([log for log in expected if log is not None], abs=1e-12)
        assert own.value == pytest.approx(sum(own.log_probabilities))


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_unchanged_weights_give_the_recorded_log_probabilities(options):
    llm = LLM(**options, max_num_reqs=16)
    hot = {} if options["model"] == "tiny-canvas" else {"temperature": 1.0, "top_p": 0.9}
    outputs = llm.generate(PROMPTS, SamplingParams(max_tokens=24, seed=5, step_map=True, **hot), progress=False)
    scored = llm.log_likelihood(trajectory=outputs)
    assert llm.log_likelihood(trajectory=outputs[0])[0].log_probabilities == pytest.approx(
        scored[0].log_probabilities, abs=1e-4
    )
    for output, own in zip(outputs, scored, strict=True):
        assert own.log_probabilities == pytest.approx(recorded_logs(output.step_map), abs=1e-4)
        assert own.estimator == "trajectory" and len(own.log_probabilities) >= len(output.token_ids)


def test_what_cannot_be_scored_is_refused():
    llm = LLM("tiny-llada")
    (plain,) = llm.generate(PROMPTS[:1], SamplingParams(max_tokens=8), progress=False)
    (output,) = llm.generate(PROMPTS[:1], SamplingParams(max_tokens=8, step_map=True), progress=False)
    loaded = replace(output, step_map=StepMap.from_json(output.step_map.to_json()))
    assert [*examples(loaded)] == [*examples(output)] == [*examples(output.step_map)]
    (rejected,) = llm.generate([5] * 600, SamplingParams(max_tokens=8, step_map=True), progress=False)
    for call, message in (
        (partial(llm.log_likelihood, trajectory=plain), "generate it with SamplingParams"),
        (partial(examples, plain), "generated with SamplingParams"),
        (partial(examples, [plain]), "give an Output, generated with"),
        (partial(llm.log_likelihood, "a", "b", trajectory=plain), "leave out prompts and completions"),
        (partial(llm.log_likelihood, trajectory=[output, loaded]), "trajectory: output 1 has no recorded steps"),
        (partial(examples, output, 0), "merge must be a positive number"),
        (partial(llm.log_likelihood, trajectory=rejected), "trajectory: output 0 is no answer .*600 tokens.*leave it out"),
        (
            partial(LLM("tiny-bd").log_likelihood, trajectory=output),
            "output 0 has .*DualCache.* this LLM .*MultiBD.*: score it",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_an_aborted_answer_is_scored_as_far_as_it_came():
    llm = LLM("tiny-llada")
    session = llm.session()
    request = session.submit(PROMPTS[0], SamplingParams(max_tokens=24, step_map=True))
    session.step()
    session.abort(request, "enough")
    output = session.output(request)
    (own,) = llm.log_likelihood(trajectory=output)
    assert output.error == "enough" and own.log_probabilities == pytest.approx(recorded_logs(output.step_map), abs=1e-4)


@pytest.mark.parametrize("given", ["text", 3, {}, [None], ["a"], [3], iter(())])
def test_wrong_types_are_refused_by_name(given):
    with pytest.raises(Refused, match="trajectory: output 0 must be an Output, got "):
        LLM("tiny-llada").log_likelihood(trajectory=given)
    with pytest.raises(ValueError, match="has no step map: give an Output"):
        examples(given)
    with pytest.raises(ValueError, match=r"data must be what `StepMap.to_json` returned, got "):
        StepMap.from_json(given)
