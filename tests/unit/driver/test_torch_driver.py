"""The torch driver against dense recomputation, and the rules of a device."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep import LLM, tiny
from dlstep.core import (
    CacheMismatch,
    Config,
    Request,
    SampleSpec,
    SamplingParams,
    abort,
    commit,
    rebuild,
    schedule,
)
from dlstep.driver import TorchDriver
from dlstep.models import networks
from dlstep.rules.threshold import Threshold
from dlstep.strategies.d2f import D2F
from dlstep.strategies.dmax import DMax
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.decoding import by_driver, decoded, with_requests
from ...helpers.naming import Loyal, NamingGrid
from ...helpers.random_checkpoints import BLOCK, WORDS
from ...helpers.spans import changed
from .dense_oracle import DenseDriver, dense_states

STRATEGIES = {
    "multi_bd": MultiBD(block_size=BLOCK, buffer_size=3, rule=Threshold(0.25)),
    "d2f": D2F(block_size=BLOCK, buffer_size=2, add_block_threshold=0.5, rule=Threshold(0.2)),
    "multi_bd, scored ids": NamingGrid(block_size=BLOCK, buffer_size=2, rule=Loyal(0.03)),
}
ROOMY = {"page_size": 8, "num_pages": 64, "max_model_len": 64, "max_num_batched_tokens": 512, "max_num_reqs": 8}


def answers(state):
    """What was settled of each request, and how it ended."""
    return {number: (s.tokens(len(s.request.prompt), s.progress.settled), s.finish) for number, s in state.finished.items()}


@pytest.fixture(scope="session")
def dense(folders, checkpoints):
    return {name: DenseDriver(folder, checkpoints[name].spec.head_shift) for name, folder in folders.items()}


@st.composite
def requests(draw):
    prefix = tuple(draw(st.lists(st.integers(3, WORDS - 1), min_size=12, max_size=12)))
    made = []
    for number in range(draw(st.integers(2, 5))):
        own = draw(st.lists(st.integers(3, WORDS - 1), min_size=1, max_size=14))
        prompt = (prefix if draw(st.booleans()) else ()) + tuple(own)
        params = SamplingParams(
            max_tokens=draw(st.integers(1, 18)), temperature=draw(st.sampled_from((0.0, 0.0, 0.9))), seed=number
        )
        made.append(Request(number, prompt, params))
    return tuple(made)


@st.composite
def budgets(draw):
    """Room for one request and not much more: chunks, waits, preemptions, shared prefixes."""
    page_size = draw(st.integers(3, 9))
    return {
        "page_size": page_size,
        "num_pages": -(-(48 + 12) // page_size) + draw(st.integers(0, 8)),
        "max_model_len": 48,
        "max_num_batched_tokens": draw(st.integers(30, 70)),
        "max_num_reqs": draw(st.integers(1, 4)),
    }


@pytest.mark.parametrize("network", ["plain", "shifted", "sliding"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(asked=requests(), room=budgets())
def test_tokens_are_those_of_dense_recomputation(checkpoints, dense, network, strategy, asked, room):
    checkpoint, rules = checkpoints[network], STRATEGIES[strategy]
    config = Config(checkpoint.spec, **room)
    roomy = replace(config, num_pages=256, max_num_batched_tokens=512)
    state = decoded(with_requests(config, rules, asked), by_driver(TorchDriver(checkpoint, config)))
    alone = dense_states(dense[network], roomy, rules, asked)
    assert answers(state) == dict(pair for state in alone for pair in answers(state).items())


def requests_of(*prompts, max_tokens):
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return [Request(number, prompt, params) for number, prompt in enumerate(prompts)]


def crowded(checkpoint, strategy):
    config = Config(checkpoint.spec, 4, 20, 64, 64, 4)
    prompts = [tuple(3 + (number * 5 + place) % (WORDS - 3) for place in range(9 + 3 * number)) for number in range(5)]
    return with_requests(config, strategy, requests_of(*prompts, max_tokens=24)), config


MERGES = st.one_of(
    st.fixed_dictionaries({"token_merge_renormalize": st.booleans()}),
    st.just({"token_merge_weight": 0.0}),
    st.fixed_dictionaries(
        {
            "token_merge_mode": st.just("iter_smooth_topk"),
            "token_merge_top_k": st.integers(1, 4),
            "token_merge_weight": st.sampled_from((0.5, 3.0)),
        }
    ),
)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(asked=requests(), merges=st.lists(MERGES, min_size=5, max_size=5))
def test_requests_that_merge_tokens_differently_answer_as_alone(checkpoints, asked, merges):
    asked = [
        replace(request, params=replace(request.params, temperature=0.0, strategy_options=tuple(merge.items())))
        for request, merge in zip(asked, merges, strict=False)
    ]
    config, strategy = Config(checkpoints["plain"].spec, **ROOMY), DMax(block_size=BLOCK, accept_threshold=0.1)

    def decoded_of(*asked):
        return answers(decoded(with_requests(config, strategy, asked), by_driver(TorchDriver(checkpoints["plain"], config))))

    alone = [decoded_of(request) for request in asked]
    assert decoded_of(*asked) == {number: answer for answers in alone for number, answer in answers.items()}


def test_another_digest_is_refused_until_the_state_is_rebuilt(checkpoints):
    state, config = crowded(checkpoints["plain"], STRATEGIES["multi_bd"])
    driver = TorchDriver(checkpoints["plain"], config)
    early = state
    for number in range(4):
        state = commit(state, driver.run(schedule(state)))
        early = state if number == 1 else early
    stale = schedule(early)
    with pytest.raises(
        CacheMismatch, match=r"step 2 continues the cache digest \d+, which no KV cache of its owner has: rebuild\(state\)"
    ):
        driver.run(stale)
    with pytest.raises(CacheMismatch):
        TorchDriver(checkpoints["plain"], config).run(schedule(state))
    expected = decoded(state, by_driver(driver))
    assert answers(decoded(rebuild(early), by_driver(driver))) == answers(expected)


def test_a_forward_pass_that_failed_may_be_repeated(checkpoints):
    state, config = crowded(checkpoints["plain"], STRATEGIES["multi_bd"])
    expected = decoded(state, by_driver(TorchDriver(checkpoints["plain"], config)))
    driver = TorchDriver(checkpoints["plain"], config)
    state = commit(state, driver.run(schedule(state)))
    plan = schedule(state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.network, "body", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
        with pytest.raises(RuntimeError, match="out of memory"):
            driver.run(plan)
    with pytest.raises(CacheMismatch, match=r"rebuild\(state\)"):
        driver.run(schedule(abort(state, 1)))
    assert answers(decoded(commit(state, driver.run(plan)), by_driver(driver))) == answers(expected)


def test_numbers_that_are_not_finite_end_only_their_request(checkpoints):
    checkpoint = checkpoints["plain"]
    poison = WORDS - 1
    config = Config(checkpoint.spec, **ROOMY)
    prompts = [tuple(range(3, 20)), (*range(5, 14), poison, 9, 9), tuple(range(8, 30)), tuple(range(3, 20))]

    def finished(*numbers):
        asked = [requests_of(*prompts, max_tokens=12)[number] for number in numbers]
        return decoded(with_requests(config, STRATEGIES["multi_bd"], asked), by_driver(TorchDriver(checkpoint, config)))

    weight = checkpoint.network.get_input_embeddings().weight
    kept = weight.detach().clone()
    expected = answers(finished(0, 2, 3))
    assert not any(poison in tokens for tokens, _ in expected.values())
    try:
        with torch.no_grad():
            weight[poison] = torch.nan
        poisoned = answers(finished(0, 1, 2, 3))
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    assert poisoned.pop(1)[1] == "error" and poisoned == expected


ALL_IDS = (*range(-1, WORDS + 3),)


@pytest.mark.parametrize("network", ["plain", "shifted", "sliding"])
@pytest.mark.parametrize("tempered", [True, False])
def test_scored_ids_have_the_probabilities_of_transformers(checkpoints, dense, network, tempered):
    """Every id of the vocabulary is scored, some requests have a temperature, and one has a single scored id."""
    config = Config(checkpoints[network].spec, **ROOMY)
    asked = [
        Request(n, tuple(range(3 + n, 14 + 2 * n)), SamplingParams(max_tokens=10, temperature=heat, seed=n, ignore_eos=True))
        for n, heat in enumerate((0.0, 0.6, 1.7))
    ]
    state = with_requests(config, STRATEGIES["multi_bd"], asked)
    driver = TorchDriver(checkpoints[network], config)
    spec = SampleSpec(frozenset(("entropy", "margin", "noise")), best=3, tempered=tempered, scored=len(ALL_IDS))
    checked = 0
    while not state.done:
        planned = schedule(state)
        ids = [(7,) if span.who.id == 2 else ALL_IDS for span in planned.spans]
        spans = [changed(span, scored_ids=own * len(span.wanted.sampled)) for span, own in zip(planned.spans, ids, strict=True)]
        samples = driver.run(replace(planned, spans=tuple(spans), sample_spec=spec))
        for span, rows in zip(spans, samples.spans, strict=True):
            plain = span if tempered else changed(span, params=replace(span.who.params, temperature=0.0))
            expected = dense[network].rows(state, None, plain).scored_probabilities
            assert rows.scored_probabilities == pytest.approx(expected, abs=2e-6)
            if span.who.id != 2:
                own = [
                    rows.scored_probabilities[row * len(ALL_IDS) :][: len(ALL_IDS)] for row in range(len(span.wanted.sampled))
                ]
                assert [chances[token + 1] for chances, token in zip(own, rows.tokens, strict=True)] == [*rows.probabilities]
                best = [(row, token) for row in range(len(own)) for token in rows.best_ids[3 * row : 3 * row + 3]]
                assert [own[row][token + 1] for row, token in best] == [*rows.best_probabilities]
                checked += len(own)
        state = commit(state, samples)
    assert checked > 20


def test_a_head_that_samples_without_logits_gives_the_same_answers(monkeypatch):
    """As on a device with kernels; here their twins run. `step_map` needs the logits as well."""
    prompts = [f"{problem.prompt}\n" for problem in tiny.problems(3, seed=1)]
    params = [SamplingParams(max_tokens=20, step_map=number > 0, top_logprobs=number) for number in range(3)]
    plain = LLM("tiny-bd", device="cpu", dtype="bfloat16")
    monkeypatch.setattr(networks, "has_kernels", lambda device: True)
    fused = LLM("tiny-bd", device="cpu", dtype="bfloat16")
    expected, found = ([each.token_ids for each in llm.generate(prompts, params, progress=False)] for llm in (plain, fused))
    assert found == expected and all(expected)
