"""Laws for every decoding rule, on each kind of carrier that it goes with."""

import os

import pytest
from hypothesis import given, strategies as st

from dlstep import rules
from dlstep.core import Spec, Strategy
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import MASK, VOCABULARY
from dlstep.testing.laws import LAWS, Law, overrides, progress, transparency

# The carriers are held to all laws with their own rules; `make night` holds them to all with every rule.
FEW = [progress, transparency, overrides]
CHOSEN = LAWS if os.environ.get("HYPOTHESIS_PROFILE") in ("seeds", "night") else FEW


def carried(name: str) -> list[Strategy]:
    """The rule on a grid, unless it needs the whole answer, and on a canvas."""
    rule = rules.load(name)()
    spec = Spec(MASK, (1,), VOCABULARY)
    return [value for value in (MultiBD(rule=rule), DualCache(cache="none", rule=rule)) if not value.incompatibility(spec)]


PAIRS = [value for name in rules.available() for value in carried(name)]


def named(value: Strategy) -> str:
    return f"{type(value).__name__}-{type(value.rule).__name__}"  # pyright: ignore[reportAttributeAccessIssue]


def test_every_rule_goes_with_a_canvas() -> None:
    assert {type(value.rule) for value in PAIRS if isinstance(value, DualCache)} == {*map(rules.load, rules.available())}


@pytest.mark.parametrize("value", PAIRS, ids=named)
@pytest.mark.parametrize("law", CHOSEN, ids=lambda law: law.__name__)
@given(data=st.data())
def test_law(law: Law, value: Strategy, data: st.DataObject) -> None:
    law(value, data)
