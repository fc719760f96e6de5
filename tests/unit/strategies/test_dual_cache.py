"""The dual cache: what it feeds and how it shares a block among its forwards."""

from dataclasses import replace

from hypothesis import given, strategies as st

from dlstep.core import Request, SamplingParams, add, init
from dlstep.rules.quota import Quota
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.generators import ample, cases, hyperparameters, specs
from dlstep.testing.harness import alone, run_case

from .shapes import Script, samplings, shapes


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
            before = step.before.find(span.who.id)
            assert before is not None
            limit, length = before.request.limit, len(before.request.prompt)
            assert span.rows.end == span.rows.grid.end(0) == limit, "a position is not seen"
            start = span.wanted.sampled[0] - (span.wanted.sampled[0] - length) % value.block_size
            end = min(start + value.block_size, limit)
            assert span.wanted.sampled[-1] < end
            if value.cache == "none" or (span.who.seq_id, start) not in fed or (shift and span.wanted.sampled[0] == start):
                assert (span.rows.start, span.rows.stop) == (0, limit)
                fed.add((span.who.seq_id, start))
            else:
                assert (span.rows.start, span.rows.stop) == (start, end if value.cache == "dual" else limit)


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
    chosen: dict[int, list[int]] = {}
    for span, before, after in samplings(alone(spec, value, request)):
        left = {position for block in after.window for position in block.masked}
        chosen.setdefault(before.window[0].start, []).append(len(set(span.wanted.sampled) - left))
    for shares in chosen.values():
        assert len(shares) == min(steps, sum(shares))
        assert shares == sorted(shares, reverse=True) and shares[0] - shares[-1] <= 1
    accepting = replace(request, id=1, params=replace(plain, strategy_options=(("accept_threshold", 0.5),)))
    refused = add(init(ample(spec), value), accepting).finished[1]
    assert refused.finish == "rejected" and "has no option 'accept_threshold'" in refused.error
