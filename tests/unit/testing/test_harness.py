"""The harness calls the watcher, which checks invariants of a run, after every step; the generators draw every field."""

from contextlib import suppress
from dataclasses import fields

from hypothesis import Phase, find, given, settings, strategies as st
from hypothesis.errors import NoSuchExample

from dlstep.core import SamplingParams
from dlstep.strategies.diffusion_gemma import DiffusionGemma
from dlstep.strategies.dreamon import DreamOn
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import Case, cases
from dlstep.testing.harness import run_case

TEXTS, SAMPLERS = {"choice", "end_reserve", "grammar", "json_schema", "regex"}, {"n", "seeds", "min_p", "top_k", "top_p"}
ELSEWHERE = TEXTS | SAMPLERS | {"processors", "top_logprobs"}  # fields that the core does not read, or that other tests draw
CASES = st.sampled_from([MultiBD, DreamOn, DiffusionGemma]).flatmap(lambda kind: cases(kind, forks=True))


@given(st.data())
def test_every_step_is_watched_once(data):
    case, watched = data.draw(cases(MultiBD)), []

    def watch(run):
        watched.append((len(run.steps), run.state.step))

    run = run_case(case, watch=watch)
    assert watched == [(number, step.after.step) for number, step in enumerate(run.steps, start=1)]


def test_each_field_is_drawn():
    missing = {field.name for cls in (Case, SamplingParams) for field in fields(cls)} - ELSEWHERE

    def all_were_drawn(case):
        for value in (case, *(request.params for request in case.requests)):
            missing.difference_update(field.name for field in fields(value) if getattr(value, field.name) != field.default)
        return not missing

    with suppress(NoSuchExample):
        find(CASES, all_were_drawn, settings=settings(max_examples=1000, phases=[Phase.generate], database=None))
    assert not missing


@given(CASES)
def test_a_case_that_forks_within_a_block_has_forks(case):
    assert case.forks or not case.within
