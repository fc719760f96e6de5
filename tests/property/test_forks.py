"""Forks from any rule to any other, in the middle of blocks: what users have seen stays, and the tokens end the answer."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from dlstep import rules
from dlstep.core import Config, Request, SamplingParams, probe, updates
from dlstep.core.commit import apply_finish_rules
from dlstep.core.sequence import StopState
from dlstep.rules.remdm import ReMDM
from dlstep.rules.threshold import Threshold
from dlstep.strategies.causal_blocks import CausalBlocks
from dlstep.strategies.d2f import D2F
from dlstep.strategies.diffusion_gemma import DiffusionGemma
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.strategies.multi_bd_edit import MultiBDEdit
from dlstep.testing.generators import Case, ample, counting_rules, hyperparameters, random_automata, specs
from dlstep.testing.harness import check_answer, run_case
from dlstep.testing.laws import progress
from dlstep.testing.sharing import check_updates

from ..helpers.decoding import SPEC
from .test_taking_back import Wavering

CARRIERS = [MultiBD(), D2F(), CausalBlocks(), DualCache(cache="none"), DualCache()]
CLASSES = [*map(rules.load, rules.own())]
REMASKING = [*map(rules.load, ("hierarchy", "remdm", "running_confidence", "saber"))]
WAVERING = st.builds(Wavering, st.integers(1, 5), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
OTHERS = {
    "buffer_size": st.sampled_from([1, 2, 4]),
    "cache": st.sampled_from(["none", "prefix", "dual"]),
}


@st.composite
def forked_cases(draw, carrier):
    """Generate two requests with stops, limits of repetition or a constraint, and up to three forks in their first steps."""
    drawn_rules = (
        WAVERING | st.sampled_from(CLASSES).flatmap(hyperparameters) | st.sampled_from(REMASKING).flatmap(hyperparameters)
    )
    others = st.fixed_dictionaries({}, optional={name: values for name, values in OTHERS.items() if hasattr(carrier, name)})
    carrier = replace(carrier, block_size=draw(st.sampled_from([2, 4, 8])), **draw(others))
    first = draw(drawn_rules.filter(lambda rule: _fits(carrier, rule)))
    params = SamplingParams(
        max_tokens=draw(st.sampled_from([8, 13, 20])),
        ignore_eos=True,
        seed=draw(st.integers(0, 9)),
        stop=draw(st.sampled_from([(), ("abab",), ("ab", "cdc"), ("bb", "dad")])),
        max_repetition_run=draw(st.sampled_from([None, 2])),
    )
    requests = [Request(number, (number, 1), params) for number in range(2)]
    if (automaton := draw(st.none() | st.sampled_from(random_automata()))) is not None:
        free = replace(params, ignore_eos=False, max_repetition_run=None)
        requests = [replace(request, params=free, automaton=automaton) for request in requests]
    changes = st.builds(lambda rule, other: {"rule": rule, **other}, drawn_rules, others)
    forks = draw(st.lists(st.tuples(st.integers(1, 7), changes | others), min_size=1, max_size=3))
    config = Config(SPEC, 4, 64, 32, 400, 4, enable_prefix_caching=draw(st.booleans()))
    return Case(config, replace(carrier, rule=first), tuple(requests), (0, draw(st.integers(0, 2))), forks=tuple(forks))


def _fits(carrier, rule):
    try:
        return not replace(carrier, rule=rule).refusal(SPEC, probe(SPEC))
    except ValueError:
        return False


@pytest.mark.parametrize("carrier", CARRIERS, ids=lambda value: f"{type(value).__name__}")
@given(data=st.data())
def test_forks_keep_what_was_told_and_answers_end_where_their_tokens_say(carrier, data):
    case = data.draw(forked_cases(carrier))
    run = run_case(case)
    states = run.first, *[step.after for step in run.steps], run.state
    check_updates([updates(before, after) for before, after in pairwise(states)], run.state.finished)
    for request in case.requests:
        check_answer(run.state, request)
        done = run.state.finished[request.id]
        unread = replace(done, stop_state=StopState(), finish_info=None)
        assert apply_finish_rules(unread, len(request.prompt), SPEC).finish_info == done.finish_info, (
            "all tokens at once end elsewhere"
        )
        if request.automaton is not None and done.finish == "length":
            assert request.automaton.accepts(done.answer), "an answer is not in the language"


@pytest.mark.parametrize("carrier", CARRIERS, ids=lambda value: f"{type(value).__name__}")
@given(data=st.data())
def test_rule_that_counts_passes_finishes_a_block_that_another_rule_began(carrier, data):
    """Each pass lowers the measure of the block, which the first rule left behind the schedule of the second."""
    strategy = replace(carrier, block_size=8)
    request = Request(0, tuple(range(8)), SamplingParams(max_tokens=16, ignore_eos=True))
    config, second = ample(data.draw(specs(strategy))), data.draw(counting_rules(strategy))
    for first, step in ((Threshold(1.0), data.draw(st.integers(1, 7))), (ReMDM(), 10)):
        strategy = replace(strategy, rule=first)
        run = run_case(Case(config, strategy, (request,), (0,), forks=((step, second),), within=True))
        assert len(run.state.finished[0].answer) == 16, (first, step)


@pytest.mark.parametrize("step", range(1, 7))
@pytest.mark.parametrize(
    "strategy, mask_id, lowered",
    [
        (DiffusionGemma(canvas_length=4, confidence_threshold=1e-9), None, "max_denoising_steps"),
        (MultiBDEdit(block_size=2, buffer_size=1), SPEC.mask_id, "max_post_edit_steps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_measure_falls_after_a_fork_that_allows_fewer_passes_than_a_block_has_had(strategy, mask_id, lowered, step):
    requests = [Request(number, (number, 1), SamplingParams(max_tokens=12, ignore_eos=True)) for number in range(4)]
    config = ample(replace(SPEC, mask_id=mask_id))
    case = Case(config, strategy, tuple(requests), (0, 1, 2, 3), forks=((step, {lowered: 1}),))
    progress(type(strategy), SimpleNamespace(draw=lambda _: case))
