"""The seed of a request depends on the engine's seed, its prompt and its index among equal ones, and on nothing else."""

import struct
from dataclasses import replace
from hashlib import blake2b
from itertools import permutations

import pytest

from dlstep import SamplingParams
from dlstep.core import Request, add
from dlstep.core.lifecycle import derived_seed

from ...helpers.shadow_llm import make_llm

PROMPTS = ["How many", "other", "a third one"]
PARAMS = SamplingParams(max_tokens=16, temperature=0.8)


def answers(llm, prompts):
    return [output.token_ids for output in llm.generate(prompts, PARAMS)]


def seed_of(params=PARAMS, *, prompt=(5, 6), index=0, request_id=0):
    """The seed that a fresh state gives a request."""
    (sequence,) = add(make_llm().state, Request(request_id, prompt, params, index=index)).waiting
    return sequence.request.seed


def test_an_answer_is_the_same_alone_in_a_batch_in_any_order_and_after_others():
    alone = {prompt: answers(make_llm(), [prompt])[0] for prompt in PROMPTS}
    assert len(set(alone.values())) == len(PROMPTS)
    llm = make_llm()
    for order in permutations(PROMPTS):
        assert answers(make_llm(), list(order)) == [alone[prompt] for prompt in order]
        assert answers(llm, list(order)) == [alone[prompt] for prompt in order], "earlier requests changed it"
    for prompt in PROMPTS:
        stream = llm.stream(prompt, PARAMS)
        "".join(stream)
        assert stream.output.token_ids == alone[prompt]
        session = llm.session()
        session.submit("something else", PARAMS)
        number = session.submit(prompt, PARAMS)
        session.run()
        assert session.output(number).token_ids == alone[prompt]


def test_equal_requests_of_one_call_differ_and_a_repeated_call_repeats_them():
    llm = make_llm()
    first = answers(llm, ["How many"] * 6)
    assert len(set(first)) == 6
    assert answers(llm, ["How many"] * 6) == first
    assert answers(make_llm(), ["How many"] * 6) == first
    assert answers(llm, ["How many"] * 2) == first[:2], "more of them changed the first ones"
    mixed = answers(llm, ["How many", "other", "How many", "other", "How many"])
    assert mixed[::2] == first[:3] and len(set(mixed)) == 5
    assert [output.token_ids for output in llm.generate(["How many"] * 2, replace(PARAMS, seed=3))] == [
        llm.generate("How many", replace(PARAMS, seed=3))[0].token_ids
    ] * 2, "a seed of its own decides alone"


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.1},
        {"temperature": 0.0},
        {"max_tokens": 3},
        {"top_k": 5, "top_p": 0.5, "min_p": 0.1},
        {"strategy_options": {"accept_threshold": 0.2}},
        {"stop": ("x",), "stop_token_ids": (7,), "ignore_eos": True, "max_nfe": 4, "max_repetition_run": 3},
    ],
)
def test_options_do_not_change_the_seed(options):
    changed = replace(PARAMS, **options)
    assert seed_of(changed) == seed_of()
    llm = make_llm()
    requests = llm.generate(["How many", "How many"], [PARAMS, changed])
    alone = make_llm().generate("How many", changed)
    assert requests[1].token_ids == alone[0].token_ids, "one of other options beside it counted as equal"


def test_what_the_seed_depends_on():
    seeds = {seed_of(), seed_of(prompt=(6, 5)), seed_of(prompt=(5, 6, 7)), seed_of(index=1), seed_of(index=2)}
    assert len(seeds) == 5 and all(0 <= seed < 1 << 64 for seed in seeds)
    assert seed_of(request_id=9) == seed_of()
    assert seed_of(replace(PARAMS, seed=-4)) == -4
    state = make_llm().state
    other = replace(state, config=replace(state.config, seed=1))
    (sequence,) = add(other, Request(0, (5, 6), PARAMS)).waiting
    assert sequence.request.seed not in seeds
    assert sequence.request.seed == derived_seed(1, (5, 6), 0)
    # Computed by hand: seeds are the same in every process and version.
    numbers = struct.pack("<3q", 0, 5, 6)
    assert seed_of() == int.from_bytes(blake2b(numbers, digest_size=8, key=bytes(8)).digest(), "little")
