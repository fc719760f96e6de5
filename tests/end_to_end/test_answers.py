"""The embedded models, end to end: right answers, and the same ones whatever the engine is short of."""

from functools import cache

import pytest

from .decoders import DECODERS, LIMIT, exact, fed_end, holds_all, llm_of, prompts

PROBLEMS = 10  # the fewest of which each strategy preempts one where pages are short, and one more
COUNTS = [PROBLEMS, pytest.param(16, marks=pytest.mark.stress)]


@cache
def expected(name, count=PROBLEMS, kv_cache_dtype=None):
    """Answers of an engine in which nothing is short and nothing shared, one request at a time."""
    llm = llm_of(name, enable_prefix_caching=False, max_num_reqs=1, kv_cache_dtype=kv_cache_dtype)
    return [llm.generate(prompt, LIMIT)[0].token_ids for prompt in prompts(count)]


def pages(name, page_size, times=1.0):
    """One page more than `times` requests of 128 tokens need."""
    least = -(-fed_end(name, 128) // page_size)
    held = int(times * least)
    return {"max_num_reqs": 8, "max_model_len": 128, "page_size": page_size, "num_pages": held + 1}


ENGINES = {
    "batch 3": lambda name: {"max_num_reqs": 3},
    "batch 8": lambda name: {"max_num_reqs": 8},
    "least pages": lambda name: pages(name, 4),
    "least pages, FP8": lambda name: pages(name, 4) | {"kv_cache_dtype": "fp8"},
    "large pages": lambda name: pages(name, 32, 4),
    "few rows": lambda name: {"max_num_reqs": 8, "max_num_batched_tokens": 128},
}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "engine", [each if each in ("batch 3", "least pages") else pytest.param(each, marks=pytest.mark.full) for each in ENGINES]
)
@pytest.mark.parametrize("count", COUNTS)
def test_answers_do_not_depend_on_the_engine(name, engine, count):
    options = ENGINES[engine](name)
    llm, short = llm_of(name, **options), engine.startswith("least pages")
    if short:
        llm.engine.driver.room = lambda: 0  # a session gets the pages of one longest request
    session = llm.session()
    numbers = [session.submit(prompt, LIMIT) for prompt in prompts(count)]
    preempted = set()
    while not session.state.done:
        session.step()
        preempted.update(session.plan.preemptions)
    # A strategy that reads what older tokens stored answers as it declares: alike unless it was preempted.
    spared = set() if exact(name) else preempted
    assert len(spared) < count
    assert preempted or not short or holds_all(name)
    for number, due in zip(numbers, expected(name, count, options.get("kv_cache_dtype")), strict=True):
        assert number in spared or session.output(number).token_ids == due


@pytest.mark.full
@pytest.mark.parametrize("name", DECODERS)
def test_a_second_turn_finds_the_first(name):
    llm = llm_of(name, page_size=4)
    session = llm.session()
    number = session.submit(prompts(1)[0], LIMIT)
    session.run()
    talk = prompts(1)[0] + session.output(number).text + prompts(2)[1]
    second = session.submit(talk, LIMIT)
    (admission,) = session.plan.admissions
    done = session.state.finished[number]
    grid = llm.state.strategy.grid(done.request)
    positions = 4 * len(admission.shared)
    if grid.origin:  # another prompt is another group, so that every key and value differs
        assert not positions
    else:
        assert positions > len(done.request.prompt + done.answer) - grid.size - 16
    session.run()
    cold = llm_of(name, page_size=4, enable_prefix_caching=False)
    assert session.output(second).token_ids == cold.generate(talk, LIMIT)[0].token_ids
