"""`Rule.accepted` agrees with `Rule.commit`: blockwise strategies ask the former for all blocks of a forward pass at once."""

import pytest
from hypothesis import given, strategies as st

from dlstep import rules
from dlstep.core import Block, Grid, Request, Rule, SamplingParams, SpanSamples, Spec
from dlstep.core.lifecycle import open_sequence
from dlstep.core.sequence import SequenceState
from dlstep.rules.threshold import Threshold
from dlstep.strategies.multi_bd import MultiBD

MASK, VOCABULARY = 9, 10
SPEC = Spec(MASK, (1,), VOCABULARY)
SHIPPED = [rule() for name in rules.available() if isinstance((rule := rules.load(name))(), Rule)]
RULES = [*SHIPPED, Threshold(inclusive=True), Threshold(accept_threshold=0.0), Threshold(accept_threshold=1.0, inclusive=True)]
# Equal numbers, those of the threshold and its neighbours, and any others.
PROBABILITIES = st.sampled_from([0.0, 0.5, 0.9, 0.9000000000000001, 1.0]) | st.floats(0.0, 1.0)


def opened(rule: Rule) -> SequenceState:
    request = Request(0, (1,), SamplingParams(max_tokens=30), seed=0, seq_id=0)
    return open_sequence(request, 31, (1,), Grid(0, 8), MultiBD(block_size=8, rule=rule))


def test_a_rule_accepts_rows_of_any_block() -> None:
    none = SpanSamples((), ())
    assert [type(rule) for rule in SHIPPED if rule.accepted(none) is not None] == [Threshold]
    assert all(rule.SAMPLES_MASKED and not rule.remasks for rule in RULES if rule.accepted(none) is not None)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.accepted(SpanSamples((), ())) is not None], ids=repr)
@given(data=st.data())
def test_accepted_rows_are_those_that_the_rule_unmasks(rule: Rule, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    numbers = data.draw(st.lists(PROBABILITIES, min_size=sum(sizes), max_size=sum(sizes)))
    rows = SpanSamples((3,) * len(numbers), tuple(numbers))
    accepted = rule.accepted(rows)
    assert accepted is not None
    sequence, begin = opened(rule), 0
    for size in sizes:
        block = Block(8, (MASK,) * size, tuple(range(8, 8 + size)), (0.0,) * size)
        mine = [row for row in accepted if begin <= row < begin + size]
        expected = block.unmask_rows(mine, begin, rows.tokens, rows.probabilities) if mine else block
        assert rule.commit(sequence, block, rows, begin, False, SPEC) == expected
        forced = rule.commit(sequence, block, rows, begin, True, SPEC)
        assert forced == expected if mine else len(forced.masked) == size - 1
        begin += size
