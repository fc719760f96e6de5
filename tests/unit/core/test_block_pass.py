"""What a rule sees of a forward pass: the samples of its own block, entry by entry."""

from dataclasses import fields
from itertools import accumulate, pairwise

from hypothesis import given, strategies as st

from dlstep.core import Block, BlockPass, Request, SpanSamples, planned_pass, samples_of
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import MASK

from ...helpers.decoding import SPEC, waiting
from ...helpers.spans import span_with

SEQUENCE = waiting(MultiBD(), Request(0, (1, 2)))
COUNTED = SEQUENCE.after_forward(SEQUENCE.storage, 1)
BEST, SCORED = 3, 2


def samples_at(positions):
    """Samples whose values name their position."""
    once, values = tuple(positions), tuple(map(float, positions))
    best, scored = (tuple([position + rank / 10 for position in positions for rank in range(n)]) for n in (BEST, SCORED))
    return SpanSamples(once, values, values, values, tuple([p for p in positions for _ in range(BEST)]), best, once, scored)


def entries(block_pass):
    """What a rule reads."""
    names = [each.name for each in fields(SpanSamples) if each.name not in ("policy", "error")]
    return SpanSamples(*[getattr(block_pass.samples, name) for name in names])


@st.composite
def windows(draw):
    """Blocks that follow one another, and the positions that a span samples in them: any, at least one."""
    ends = list(accumulate(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)), initial=draw(st.integers(0, 3))))
    sampled = draw(st.lists(st.sampled_from(range(ends[0], ends[-1])), min_size=1, unique=True).map(sorted))
    blocks = [Block(start, (MASK,) * (end - start), (), (0.0,) * (end - start)) for start, end in pairwise(ends)]
    return blocks, sampled


def own_passes(window):
    """The passes of all blocks."""
    blocks, sampled = window
    span = span_with(sampled=tuple(sampled), draws=(0,) * len(sampled))
    return [BlockPass(block, COUNTED, samples_of(block, span, samples_at(sampled)), SPEC) for block in blocks]


@given(windows())
def test_a_rule_gets_the_samples_of_its_own_block_and_no_others(window):
    blocks, sampled = window
    for block, own in zip(blocks, own_passes(window), strict=True):
        assert list(own.sampled) == [position for position in sampled if block.start <= position < block.end]
        assert entries(own) == samples_at(list(own.sampled))


@given(windows(), st.data())
def test_an_inner_rule_gets_the_samples_of_some_positions(window, data):
    for own in own_passes(window):
        some = tuple(position for position in own.sampled if data.draw(st.booleans()))
        part = own.only(some)
        assert part.sampled == some and entries(part) == samples_at(list(some))


def test_passes_of_a_block_are_numbered_from_0():
    """Also those of a part of it that opened later."""
    block = Block(2, (MASK,), (2,), (0.0,))
    part = Block(2, (MASK,), (2,), (0.0,), opened=-3)
    span = span_with(sampled=(2,), draws=(0,))
    assert planned_pass(SEQUENCE, block).number == 0
    ran = BlockPass(block, COUNTED, samples_of(block, span, samples_at([2])), SPEC)
    assert ran.number == 0 and planned_pass(COUNTED, block).number == 1
    assert ran.of(part).number == 3 and ran.of(part).block is part
