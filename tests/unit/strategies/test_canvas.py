"""Facts of strategies with a cache of unfinished positions, beyond the laws of all strategies."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep.core import (
    Config,
    Request,
    Rows,
    SamplingParams,
    Sequence,
    Span,
    Spec,
    Strategy,
    Thresholds,
    add,
    commit,
    init,
    schedule,
)
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.testing.generators import ample, batches, cases, hyperparameters, specs
from dlstep.testing.harness import Run, alone, run_case
from dlstep.testing.scripted import ScriptedDriver
from dlstep.testing.shadow import ShadowDriver

CACHED = (FastDLLMV2, DualCache)
SPEC = Spec(mask_id=99, eos_ids=(98,), vocab_size=100, head_shift=1)


def samplings(run: Run) -> list[tuple[Span, Sequence, Sequence]]:
    """The spans that sampled and were committed, each with its sequence before and after."""
    found: list[tuple[Span, Sequence, Sequence]] = []
    for step in run.steps:
        for span in step.plan.spans:
            before, after = step.before.find(span.id), step.after.find(span.id)
            assert before is not None and after is not None
            if span.wanted and before.ending is None:
                found.append((span, before, after))
    return found


@pytest.mark.parametrize("strategy", CACHED)
@given(data=st.data())
def test_no_forward_sees_an_older_token(strategy: type[Strategy], data: st.DataObject) -> None:
    """Stores are older than the canvas around them, never than their own token."""

    def watch(run: Run) -> None:
        step, device = run.steps[-1], run.driver
        assert isinstance(device, ShadowDriver)
        for span in step.plan.spans:
            sequence = step.planned.find(span.id)
            assert sequence is not None
            tokens = sequence.tokens(0, span.end)
            for position in (*range(span.start), *range(span.stop, span.end)):
                held = device.now.slots[device.slot(span.arrival, position)]
                assert (held.position, held.token) == (position, tokens[position]), f"{held} is read, not {tokens[position]}"

    run_case(data.draw(cases(strategy)), watch=watch)


@pytest.mark.parametrize("strategy", CACHED)
@given(data=st.data())
def test_decided_tokens_stay_and_come_block_by_block(strategy: type[Strategy], data: st.DataObject) -> None:
    case = data.draw(cases(strategy))
    size = case.strategy.block_size  # type: ignore[attr-defined]
    for span, before, after in samplings(run_case(case)):
        was = [position for block in before.window for position in block.undecided]
        left = [position for block in after.window for position in block.undecided]
        for position in range(len(before.request.prompt), after.window[-1].end):
            if position < was[0] or (position < before.window[-1].end and position not in was):
                assert after.tokens(position, position + 1) == before.tokens(position, position + 1)
        base = 0 if strategy is FastDLLMV2 else len(before.request.prompt)
        part = (was[0] - base) // size
        assert all((position - base) // size == part for position in span.wanted), "two parts are decided at once"
        due = tuple(position for position in was if (position - base) // size == part)
        assert span.wanted == (due if span.stop > before.window[0].start else due[:1])
        if not after.ending:
            assert after.settled == left[0]


@given(data=st.data())
def test_fast_dllm_v2_feeds_seeds_blocks_and_parts(data: st.DataObject) -> None:
    """The shape of a span follows from the block's tokens and from whether it was fed before; blocks are final when full."""
    case = data.draw(cases(FastDLLMV2))
    value = case.strategy
    assert isinstance(value, FastDLLMV2)
    size, sub = value.block_size * value.buffer_size, value.block_size
    fed: set[tuple[int, int]] = set()
    for number, step in enumerate(run_case(case).steps):
        lost = set(step.plan.preemptions)
        fed = set() if number in case.rebuilds else {place for place in fed if place[0] not in lost}
        for span in step.plan.spans:
            before, after = step.before.find(span.id), step.after.find(span.id)
            assert before is not None and after is not None
            if not span.wanted or before.ending is not None:
                continue
            start, first = before.final, span.wanted[0]
            end, corner = min(start + size, before.limit), first - first % sub
            assert start % size == 0 and (before.window[0].start, before.window[0].end) == (start, end)
            where = (span.start + span.query_only + span.final_rows, span.stop, span.end)
            if first == start:
                assert where == (start, start, start) and span.wanted == (start,) and span.tokens, "no seed"
            elif first == corner or (span.arrival, start) not in fed or not value.fdv2_use_block_cache:
                assert where == (start, end, end)
                fed.add((span.arrival, start))
            else:
                assert where == (corner, min(corner + sub, end), end)
            if not after.ending:
                assert after.final == (start if after.settled < start + size else start + size)


@given(data=st.data())
def test_dual_cache_feeds_canvases_blocks_and_ends(data: st.DataObject) -> None:
    """All see all; a block begins with the canvas, and what it feeds then follows from the cache."""
    case = data.draw(cases(DualCache))
    value, shift = case.strategy, case.config.spec.head_shift
    assert isinstance(value, DualCache)
    fed: set[tuple[int, int]] = set()
    for number, step in enumerate(run_case(case).steps):
        lost = set(step.plan.preemptions)
        fed = set() if number in case.rebuilds else {place for place in fed if place[0] not in lost}
        for span in step.plan.spans:
            before = step.before.find(span.id)
            assert before is not None
            limit, length = before.limit, len(before.request.prompt)
            assert span.end == span.grid.end(0) == limit, "a position is not seen"
            start = span.wanted[0] - (span.wanted[0] - length) % value.block_size
            end = min(start + value.block_size, limit)
            assert span.wanted[-1] < end
            if value.cache == "none" or (span.arrival, start) not in fed or (shift and span.wanted[0] == start):
                assert (span.start, span.stop) == (0, limit)
                fed.add((span.arrival, start))
            else:
                assert (span.start, span.stop) == (start, end if value.cache == "dual" else limit)


Shape = tuple[int, int, int, tuple[int, ...]]
Script = list[tuple[Shape, tuple[float, ...]]]


def shapes(strategy: Strategy, prompt: int, answer: int, script: Script, accept: float | None = None) -> list[Shape]:
    """Start behind final rows, stop, end and wanted positions of the spans of a request whose rows have `script`'s chances.

    `accept` is the request's own threshold.
    """
    chances, spans = [chance for _, chance in script], list[Shape]()

    def rows(span: Span) -> Rows:
        spans.append((span.start + span.query_only + span.final_rows, span.stop, span.end, span.wanted))
        return Rows(span.wanted, chances.pop(0))

    params = SamplingParams(max_tokens=answer, thresholds=Thresholds(accept_threshold=accept))
    request = Request(0, tuple(range(prompt)), params)
    state, driver = add(init(Config(SPEC, 8, 64, 64), strategy), request), ScriptedDriver(rows)
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
    assert not chances, "fewer forwards than expected"
    assert state.finished[0].answer == tuple(range(prompt, prompt + answer))
    return spans


def test_fast_dllm_v2_by_hand() -> None:
    """Sub-blocks of 4 in blocks of 8, a prompt of 13 and an answer of 11."""
    script: Script = [
        ((8, 16, 16, (13, 14, 15)), (0.95, 0.4, 0.3)),  # the prompt's second block, its first stored in front of it
        ((12, 16, 16, (14, 15)), (0.97, 0.2)),
        ((12, 16, 16, (15,)), (0.6,)),
        ((16, 16, 16, (16,)), (0.1,)),  # the block before is stored, and gives the first token
        ((16, 24, 24, (17, 18, 19)), (0.5, 0.6, 0.7)),
        ((16, 20, 24, (17, 18)), (0.5, 0.95)),
        ((16, 20, 24, (17,)), (0.4,)),
        ((16, 24, 24, (20, 21, 22, 23)), (0.3, 0.8, 0.2, 0.1)),
        ((16, 24, 24, (20, 22, 23)), (0.95, 0.92, 0.5)),
        ((20, 24, 24, (23,)), (0.5,)),
    ]
    assert shapes(FastDLLMV2(4, 2), 13, 11, script) == [shape for shape, _ in script]


def test_fast_dllm_v2_takes_what_is_above_the_threshold_and_the_first_of_equals() -> None:
    script: Script = [
        ((0, 8, 8, (5, 6, 7)), (0.9, 0.9, 0.1)),  # 0.9 is not above 0.9: the best one, and of two the first
        ((4, 8, 8, (6, 7)), (0.91, 0.92)),
    ]
    assert shapes(FastDLLMV2(4, 2), 5, 3, script) == [shape for shape, _ in script]


DUAL: Script = [
    ((0, 13, 13, (2, 3, 4, 5)), (0.9, 0.4, 0.4, 0.3)),  # 0.9 is enough, and it is the block's first position
    ((2, 6, 13, (3, 4, 5)), (0.4, 0.4, 0.3)),
    ((2, 6, 13, (4, 5)), (0.95, 0.9)),
    ((0, 13, 13, (6, 7, 8, 9)), (0.1, 0.5, 0.2, 0.2)),
    ((0, 13, 13, (6, 8, 9)), (0.5, 0.2, 0.4)),  # the first position of the block needs the row in front of it
    ((6, 10, 13, (8, 9)), (0.5, 0.2)),
    ((6, 10, 13, (9,)), (0.5,)),
    ((0, 13, 13, (10, 11, 12)), (0.99, 0.5, 0.2)),
    ((10, 13, 13, (11, 12)), (0.95, 0.95)),
]


def test_dual_cache_by_hand() -> None:
    """Blocks of 4, a prompt of 2 and an answer of 11, on a shifted head."""
    assert shapes(DualCache(4), 2, 11, DUAL) == [shape for shape, _ in DUAL]
    prefix = [(start, 13, 13, wanted) for (start, _, _, wanted), _ in DUAL]
    assert shapes(DualCache(4, cache="prefix"), 2, 11, DUAL) == prefix
    assert shapes(DualCache(4, cache="none"), 2, 11, DUAL) == [(0, *shape[1:]) for shape in prefix]


@pytest.mark.parametrize("own", [0.05, 1.0])
def test_a_request_of_dual_cache_may_bring_its_threshold(own: float) -> None:
    assert shapes(DualCache(4, rule=Threshold(own, inclusive=True)), 2, 11, DUAL, 0.9) == [shape for shape, _ in DUAL]


def test_dual_cache_shares_a_block_among_its_steps() -> None:
    script: Script = [
        (
            (0, 10, 10, (2, 3, 4, 5, 6, 7, 8)),
            (0.1, 0.2, 0.9, 0.2, 0.9, 0.2, 0.2),
        ),  # three of seven: 4, 6 and the first of equals
        ((0, 10, 10, (2, 5, 7, 8)), (0.5, 0.1, 0.1, 0.3)),
        ((2, 9, 10, (5, 7)), (0.1, 0.1)),
        ((0, 10, 10, (9,)), (0.1,)),  # a block of one position takes it in the first of its steps
    ]
    assert shapes(DualCache(7, rule=Quota(3)), 2, 8, script) == [shape for shape, _ in script]


@given(data=st.data())
def test_dual_cache_takes_as_many_steps_as_it_is_told(data: st.DataObject) -> None:
    steps = data.draw(st.integers(1, 5))
    value = replace(data.draw(hyperparameters(DualCache)), rule=Quota(steps))
    spec = data.draw(specs(value))
    plain = SamplingParams(max_tokens=data.draw(st.integers(1, 20)), ignore_eos=True)
    request = Request(0, (1,) * data.draw(st.integers(1, 9)), plain)
    taken: dict[int, list[int]] = {}
    for span, before, after in samplings(alone(ample(spec), value, request)):
        left = {position for block in after.window for position in block.undecided}
        taken.setdefault(before.window[0].start, []).append(len(set(span.wanted) - left))
    for shares in taken.values():
        assert len(shares) == min(steps, sum(shares))
        assert shares == sorted(shares, reverse=True) and shares[0] - shares[-1] <= 1
    accepting = replace(request, id=1, params=replace(plain, thresholds=Thresholds(accept_threshold=0.5)))
    refused = add(init(ample(spec), value), accepting).finished[1]
    assert refused.finish == "rejected" and "has no option 'accept_threshold'" in refused.error


@given(data=st.data())
def test_caches_change_nothing_where_nothing_is_read_from_them(data: st.DataObject) -> None:
    """Where a block takes one forward, or is all that a forward would feed anyway, answers do not depend on the cache."""
    strategy = data.draw(st.sampled_from(CACHED))
    value = data.draw(hyperparameters(strategy))
    spec = data.draw(specs(value))
    (request,) = data.draw(batches(value, most=1))
    request = replace(request, params=replace(request.params, thresholds=Thresholds()))
    if isinstance(value, FastDLLMV2):
        caches: list[Strategy] = [replace(value, fdv2_use_block_cache=use) for use in (True, False)]
        alone_in_block = request.prompt and len(request.prompt) + request.params.max_tokens <= value.block_size
        at_once = [replace(cache, accept_threshold=0.0) for cache in caches]
    else:
        assert isinstance(value, DualCache)
        caches = [replace(value, cache=cache) for cache in ("dual", "prefix", "none")]
        at_once = [replace(cache, rule=Quota(1)) for cache in caches]
        alone_in_block = request.params.max_tokens <= value.block_size
        caches.pop()  # without a cache the prompt sees the answer as it is
    for values in (at_once, caches if alone_in_block else []):
        finished = [alone(ample(spec), each, request).state.finished[request.id] for each in values]
        outcomes = {(one.answer, one.finish, one.error, one.probabilities) for one in finished}
        assert len(outcomes) <= 1


def test_models_and_values_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="head_shift is 0"):
        init(Config(replace(SPEC, head_shift=0)), FastDLLMV2())
    with pytest.raises(ValueError, match="no mask id"):
        init(Config(replace(SPEC, mask_id=None)), FastDLLMV2())
    with pytest.raises(ValueError, match="no mask id"):
        init(Config(replace(SPEC, mask_id=None)), DualCache())
    with pytest.raises(ValueError, match="buffer_size must be more than 1, got 1"):
        FastDLLMV2(buffer_size=1)
    with pytest.raises(ValueError, match=r"DualCache\.cache must be"):
        DualCache(cache="suffix")  # type: ignore[arg-type]
