"""Blocks of a causal network: what is refused by name, pinned first tokens, and every rule of a grid."""

import pytest
from hypothesis import given, settings, strategies as st

from dlstep import rules
from dlstep.core import Request, SamplingParams, SpanSamples, init, needs_canvas
from dlstep.strategies.causal_blocks import CausalBlocks
from dlstep.testing.laws import budgets, constrained, pinned, progress, spans_are_sound, transparency
from dlstep.testing.scripted import ScriptedDriver

from ...helpers.decoding import CONFIG, passes
from ...helpers.refusals import refused

RULES = [rules.load(name)() for name in rules.own()]
ON_GRIDS = [rule for rule in RULES if not needs_canvas(rule)]


def test_rules_on_the_whole_answer_are_refused():
    others = [rule for rule in RULES if needs_canvas(rule)]
    assert others
    for rule in others:
        with refused("rule", "unsupported"):
            init(CONFIG, CausalBlocks(rule=rule))


def decode(pins):
    """Start, rows, sampled positions and shift of each span of an answer of five tokens in blocks of three."""
    driver = ScriptedDriver(lambda span: SpanSamples(span.wanted.sampled, (0.95,) * len(span.wanted.sampled)))
    request = Request(0, (1, 2), SamplingParams(max_tokens=5, pinned=tuple(pins.items())))
    spans = [span for _, span, _ in passes(CONFIG, CausalBlocks(block_size=3), request, driver)]
    return [(span.rows.start, len(span.rows.tokens), span.wanted.sampled, span.wanted.shift) for span in spans]


def test_a_first_token_comes_from_the_pass_that_stores_what_is_before_it():
    assert decode({}) == [(0, 2, (2,), 1), (2, 3, (3, 4), 0), (2, 3, (5,), 1), (5, 2, (6,), 0)]


def test_a_pinned_first_token_is_fed_with_its_block_and_needs_a_pass_that_only_stores():
    assert decode({3: 9}) == [(0, 2, (2,), 1), (2, 3, (3, 4), 0), (2, 3, (), None), (5, 2, (6,), 0)]


@pytest.mark.parametrize("rule", ON_GRIDS, ids=lambda rule: type(rule).__name__)
@settings(max_examples=6)
@given(data=st.data())
def test_rules_obey_the_laws(rule, data):
    laws = (progress, transparency, spans_are_sound, budgets, pinned, constrained)
    law = data.draw(st.sampled_from(laws))
    law(CausalBlocks(rule=rule), data)
