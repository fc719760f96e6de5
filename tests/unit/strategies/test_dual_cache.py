"""The dual cache: what it feeds and how it shares a block among its forwards."""

from hypothesis import given, strategies as st

from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.generators import cases
from dlstep.testing.harness import run_case


@given(data=st.data())
def test_dual_cache_feeds_canvases_blocks_and_ends(data):
    """All see all; a block begins with the canvas, and what it feeds then follows from the cache."""
    case = data.draw(cases(DualCache))
    value, shift = case.strategy, case.config.spec.head_shift
    assert isinstance(value, DualCache)
    fed = set()
    for number, step in enumerate(run_case(case).steps):
        lost = set(step.plan.preemptions)
        fed = set() if number in case.rebuilds else {place for place in fed if place[0] not in lost}
        for span in step.plan.spans:
            before = step.before.find(span.who.id)
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
