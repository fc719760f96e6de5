"""Fast-dLLM v2: what it feeds and what it unmasks."""

from hypothesis import given, strategies as st

from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.testing.generators import cases
from dlstep.testing.harness import run_case


@given(data=st.data())
def test_fast_dllm_v2_feeds_seeds_blocks_and_parts(data):
    """The shape of a span follows from the block's tokens and from whether it was fed before; blocks are final when full."""
    case = data.draw(cases(FastDLLMV2))
    value = case.strategy
    assert isinstance(value, FastDLLMV2)
    size, sub = value.block_size * value.buffer_size, value.block_size
    fed = set()
    for number, step in enumerate(run_case(case).steps):
        lost = set(step.plan.preemptions)
        fed = set() if number in case.rebuilds else {place for place in fed if place[0] not in lost}
        for span in step.plan.spans:
            before, after = step.before.find(span.who.id), step.after.find(span.who.id)
            if not span.wanted.sampled or before.finish_info is not None:
                continue
            start, first = before.progress.final, span.wanted.sampled[0]
            end, corner = min(start + size, before.request.limit), first - first % sub
            assert start % size == 0 and (before.progress.window[0].start, before.progress.window[0].end) == (start, end)
            where = (span.rows.start + span.rows.query_only + span.rows.final_rows, span.rows.stop, span.rows.end)
            if first == start:
                assert where == (start, start, start) and span.wanted.sampled == (start,) and span.rows.tokens, "no seed"
            elif first == corner or (span.who.seq_id, start) not in fed or not value.fdv2_use_block_cache:
                assert where == (start, end, end)
                fed.add((span.who.seq_id, start))
            else:
                assert where == (corner, min(corner + sub, end), end)
            if not after.finish_info:
                assert after.progress.final == (start if after.progress.settled < start + size else start + size)
