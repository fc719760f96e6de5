"""`Session.fork`: a changed field of any value is refused at once, or both sessions go on to their ends."""

from dataclasses import fields, replace
from functools import cache

import pytest
from hypothesis import given, strategies as st

from dlstep import LLM, Config, SamplingParams, init, strategies
from dlstep.core import probe
from dlstep.engine.loader import LoadedEngine
from dlstep.testing.shadow import ShadowDriver
from training.tokenizer import build_tokenizer

from ...helpers.odd_values import check_sentence, check_value, made, recipes
from ...helpers.recorded import small
from ...helpers.refusals import refused
from ...helpers.shadow_llm import PAGE_SIZE, spec

PARAMS = SamplingParams(max_tokens=14, max_nfe=12, ignore_eos=True)
SPECS = [replace(spec(), mask_id=mask, head_shift=shift) for mask in (spec().mask_id, None) for shift in (0, 1)]


@cache
def llm_of(name):
    """An LLM on a shadow device, of a model that the strategy can decode."""
    strategy = small(name)
    model = next(model for model in SPECS if not strategy.refusal(model, probe(model)))
    config = Config(model, PAGE_SIZE, 64, 64, 128, 4)
    device = ShadowDriver(PAGE_SIZE, 64, model, 0.0, exact=False, places=8)
    return LLM.of(LoadedEngine(init(config, strategy), device, build_tokenizer(), "shadow"))


def under_way(name):
    """A session with one request after a few forward passes and one that waits."""
    session = llm_of(name).session()
    session.submit([5, 6, 7], PARAMS)
    for _ in range(3):
        session.step()
    session.submit([8, 9], PARAMS)
    return session


@cache
def alone(name):
    """Answers to both requests without a fork."""
    session = under_way(name)
    session.run()
    return tuple(session.output(number).token_ids for number in range(2))


def check_rest(session, name):
    """The session that was forked ends as if it were alone."""
    session.run()
    assert tuple(session.output(number).token_ids for number in range(2)) == alone(name)
    session.close()


def check_fork(name, field, given):
    session = under_way(name)
    try:
        branch = session.fork(**{field: given})
    except ValueError as error:
        check_sentence(
            error, f"{field}", "decoding_strategy: ", "num_pages: ", "max_num_batched_tokens: ", "strategy_options: "
        )
    else:
        check_value(branch.trace)
        longest = branch.submit([5] * 40, replace(PARAMS, max_tokens=24, max_nfe=30))
        branch.run()
        for number in (0, 1, longest):
            assert branch.output(number).finish_reason in ("length", "nfe_limit", "rejected"), branch.output(number)
        check_value(branch.state)
        branch.close()
    check_rest(session, name)


@pytest.mark.parametrize(
    "name, changes, field, code",
    [
        ("dmax", {"token_merge_mode": "iter_smooth_topk", "token_merge_top_k": 10**5}, "token_merge_top_k", "out_of_range"),
        ("diffusion_gemma", {"canvas_length": 127}, "num_pages", "out_of_range"),
        ("dual_cache", {"accept_threshold": 0.5}, "accept_threshold", "unknown_field"),
    ],
)
def test_a_fork_that_could_not_go_on_is_refused(name, changes, field, code):
    session = under_way(name)
    if name == "dual_cache":
        session.submit([5], replace(PARAMS, strategy_options={"rule": "quota", "steps_per_block": 2}))
    with refused(field, code):
        session.fork(**changes)
    check_rest(session, name)


@pytest.mark.filterwarnings("ignore:max_tokens. 20 exceeds the 14 tokens")
@pytest.mark.parametrize("name", strategies.available())
@pytest.mark.parametrize("prompt", [[5, 6, 7], [5] * 50])
def test_a_fork_without_changes_goes_on_as_before(name, prompt):
    """The second prompt leaves less room in `max_model_len` than `max_tokens`."""
    session = llm_of(name).session()
    session.submit(prompt, replace(PARAMS, max_tokens=20, max_nfe=None))
    for _ in range(2):
        session.step()
    branches = [session.fork(), session.fork(seed=session.state.running[0].request.seed), session]
    for branch in branches:
        branch.run()
    first, *others = [(out.token_ids, out.finish_reason, out.steps) for out in (branch.output(0) for branch in branches)]
    assert first[0] and others == [first, first]
    for branch in branches:
        branch.close()


WITH_OPTIONS = [name for name in strategies.available() if fields(strategies.load(name))]


@given(name=st.sampled_from(WITH_OPTIONS), data=st.data(), recipe=recipes)
def test_a_field_of_a_fork_takes_a_value_or_says_why_not(name, data, recipe):
    check_fork(name, data.draw(st.sampled_from([each.name for each in fields(strategies.load(name))])), made(recipe))
