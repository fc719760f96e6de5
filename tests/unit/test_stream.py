"""Streams: pieces of an answer, drafts, and streams that are left."""

# The tokenizer is that of the embedded models.
# pyright: reportOptionalMemberAccess=false

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep import SamplingParams
from dlstep.core.lifecycle import derived_seed
from dlstep.llm import Draft

from ..helpers.shadow_llm import make_llm

PROMPT = "Max has 53 shells. Later Max buys 39 more."
LONG = SamplingParams(max_tokens=40, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=40, temperature=1.0, seed=7)


@pytest.mark.parametrize("params", [LONG, SAMPLED, replace(SAMPLED, seed=None)])
def test_a_stream_is_the_text_in_pieces_and_returns_its_output(llm, params):
    stream, pieces = llm.stream(PROMPT, params), []
    with pytest.raises(StopIteration) as stop:
        while True:
            pieces.append(next(stream))
    assert stop.value.value == llm.generate(PROMPT, params)[0]
    assert "".join(pieces) == stop.value.value.text and all(pieces) and len(pieces) > 1


def test_drafts_show_the_window(llm):
    drafts = list(llm.stream_drafts(PROMPT, LONG))
    assert all(isinstance(draft, Draft) for draft in drafts)
    assert "".join(draft.piece for draft in drafts) == llm.generate(PROMPT, LONG)[0].text
    assert any(None in draft.window and any(draft.window) for draft in drafts)


@given(
    asked=st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 40), st.integers(1, 3), st.sampled_from([None, 5])), max_size=6
    ),
    num_pages=st.sampled_from([16, 60]),
    left=st.integers(0, 20),
)
def test_a_stream_of_many_yields_each_output_once_as_it_ends(asked, num_pages, left):
    prompts = [(7 + number % 3,) * length for number, (length, *_) in enumerate(asked)] or [(7, 8)]
    params = [SamplingParams(max_tokens=most, n=n, seed=seed, temperature=1.0) for _, most, n, seed in asked]
    params = params or [SamplingParams(max_tokens=4)]
    llm = make_llm(num_pages=num_pages, max_num_reqs=3, eos_share=0.2)
    expected = llm.generate(prompts, params)
    steps = []
    for number, output in (stream := llm.stream(prompts, params)):
        assert output == expected[number] and llm.state.finished.get(number) is None
        steps.append((llm.state.step, number))
        if len(steps) == left:
            stream.close()
    assert sorted(number for _, number in steps) == [*range(len(expected))] or len(steps) == left
    assert steps == sorted(steps), "an output came before one that ended earlier"
    assert llm.state.done and not llm.state.cache.owners


@given(seed=st.none() | st.integers(0, 9), n=st.integers(1, 5), others=st.lists(st.integers(1, 30), max_size=3))
def test_several_samples_are_those_of_requests_with_their_seeds(seed, n, others):
    """In any batch; without a seed, that of an answer follows from its place among equal requests."""
    params = SamplingParams(max_tokens=20, n=n, seed=seed, temperature=1.0)
    short = [SamplingParams(max_tokens=most) for most in others]
    group = make_llm().generate([PROMPT] + ["other"] * len(short), [params, *short])[:n]
    prompt = tuple(make_llm().engine.tokenizer.encode(PROMPT))
    seeds = [derived_seed(0, prompt, index) if seed is None else seed + index for index in range(n)]
    alone = [make_llm().generate(PROMPT, replace(params, n=1, seed=own))[0] for own in seeds]
    assert group == alone and len(set(group)) == n
