"""Blocks of a causal network: which rules are refused, and every rule of a grid."""

import pytest
from hypothesis import given, settings, strategies as st

from dlstep import rules
from dlstep.core import init, needs_canvas
from dlstep.strategies.causal_blocks import CausalBlocks
from dlstep.testing.laws import budgets, constrained, pinned, progress, spans_are_sound, transparency

from ...helpers.decoding import CONFIG
from ...helpers.refusals import refused

RULES = [rules.load(name)() for name in rules.own()]
ON_GRIDS = [rule for rule in RULES if not needs_canvas(rule)]


def test_rules_on_the_whole_answer_are_refused():
    others = [rule for rule in RULES if needs_canvas(rule)]
    assert others
    for rule in others:
        with refused("rule", "unsupported"):
            init(CONFIG, CausalBlocks(rule=rule))


@pytest.mark.parametrize("rule", ON_GRIDS, ids=lambda rule: type(rule).__name__)
@settings(max_examples=6)
@given(data=st.data())
def test_rules_obey_the_laws(rule, data):
    laws = (progress, transparency, spans_are_sound, budgets, pinned, constrained)
    law = data.draw(st.sampled_from(laws))
    law(CausalBlocks(rule=rule), data)
