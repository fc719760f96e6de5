"""Laws for every decoding rule, on each strategy that it goes with."""

import os
from dataclasses import dataclass, fields, replace
from typing import final

import pytest
from hypothesis import given, settings, strategies as st

from dlstep import rules, strategies
from dlstep.core import Grid, Samples, Spec, probe
from dlstep.core.lifecycle import apply
from dlstep.rules.credit import Credit
from dlstep.rules.threshold import Threshold
from dlstep.strategies import Blockwise
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import MASK, VOCABULARY
from dlstep.testing.laws import LAWS, outputs, overrides, progress, told, transparency, written_before_read

from ..unit.dlstep_kernels.profiles import up_to
from .test_processors import decoded, facts, request as asked

# Every strategy is held to all laws with any rule; `make full` holds these two to all laws with every rule.
FEW = [progress, transparency, overrides]
CHOSEN = LAWS if os.environ.get("HYPOTHESIS_PROFILE") == "seeds" else FEW
SOME = settings(max_examples=max(4, (settings.default.max_examples if settings.default else 15) // 3))


def carriers():
    """The classes of all strategies that hold a rule."""
    classes = map(strategies.load, strategies.available())
    return [cls for cls in classes if "rule" in {field.name for field in fields(cls)}]


def carried(name, classes):
    """The rule on each of the strategies that it goes with; rules that need the whole answer go with a canvas only."""
    spec, rule = Spec(MASK, (1,), VOCABULARY), rules.load(name)()
    values = [cls(rule=rule, **({"cache": "none"} if cls is DualCache else {})) for cls in classes]
    return [value for value in values if not value.refusal(spec, probe(spec))]


PAIRS = [value for name in rules.available() for value in carried(name, [MultiBD, DualCache])]
ALL_PAIRS = [value for name in rules.available() for value in carried(name, carriers())]


FILTERED = st.fixed_dictionaries({
    "temperature": st.sampled_from([0.5, 2.0]),
    "top_k": st.sampled_from([0, 1, 3]),
    "top_p": st.sampled_from([1.0, 0.6]),
    "min_p": st.sampled_from([0.0, 0.3]),
    "seed": st.integers(0, 50),
})  # fmt: skip


def named(value):
    return f"{type(value).__name__}-{type(value.rule).__name__}"


def test_every_rule_goes_with_a_canvas():
    assert {type(value.rule) for value in PAIRS if isinstance(value, DualCache)} == {*map(rules.load, rules.available())}


@pytest.mark.parametrize("value", PAIRS, ids=named)
@pytest.mark.parametrize("law", CHOSEN, ids=lambda law: law.__name__)
@up_to(80)
@given(data=st.data())
def test_law(law, value, data):
    law(value, data)


@pytest.mark.parametrize("value", ALL_PAIRS, ids=named)
@pytest.mark.parametrize("law", [outputs, told], ids=lambda law: law.__name__)
@SOME
@given(data=st.data())
def test_settled_tokens_never_change(law, value, data):
    law(value, data)


@pytest.mark.parametrize("cls", carriers(), ids=lambda cls: cls.__name__)
@settings(max_examples=5)
@given(params=FILTERED, accept=st.sampled_from([0.02, 0.1, 0.3, 0.9]), inclusive=st.booleans())
def test_credit_of_no_weight_is_the_threshold(cls, params, accept, inclusive):
    pair = (Threshold(accept, inclusive), Credit(accept, inclusive, credit_weight=0.0))
    one, other = (decoded(cls(block_size=4, rule=rule), [asked(3, **params)])[0].finished[3] for rule in pair)
    assert facts(one) == facts(other)


FEW_FILTERED = [pytest.param(value, marks=[pytest.mark.full] * (type(value.rule) is not Credit)) for value in ALL_PAIRS]


@pytest.mark.parametrize("value", FEW_FILTERED, ids=named)
@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_rules_set_only_tokens_that_filters_keep(value, temperature):
    """With one token left at each position, no other is set, whatever its credit."""
    value = replace(value, block_size=4)
    if type(value.rule) is Credit:
        value = replace(value, rule=Credit(1.0, credit_weight=4.0, credit_power=0.0, credit_decay=1.0))
    _, trace = decoded(value, [asked(n, temperature=temperature, top_k=1, max_tokens=12, ignore_eos=True) for n in range(6)])
    state = trace.first
    for event in trace.events:
        before, state = state, apply(state, event)
        for span, rows in zip(event.plan.spans, event.spans, strict=True) if isinstance(event, Samples) else ():
            fed, done = before.find(span.who.id), state.find(span.who.id)
            assert fed is not None and done is not None and not done.error, done
            allowed = {*fed.unmasked_tokens.items(), *zip(span.wanted.sampled, rows.tokens, strict=True)}
            assert allowed.issuperset(done.unmasked_tokens.items())


@final
@dataclass(frozen=True, slots=True)
class Keeping(Blockwise):
    """Blocks whose rows count as stored once their tokens are final: only whole groups may, as a row sees all of its group."""

    def grid(self, request):
        del request
        return Grid(0, self.block_size)

    def schedule(self, sequence, spec):
        span = Blockwise.schedule(self, sequence, spec)
        return replace(span, storing=replace(span.storing, keeps_window=span.storing.joins))


@pytest.mark.parametrize("law", [written_before_read, transparency], ids=lambda law: law.__name__)
@given(data=st.data())
def test_kept_windows_are_cut_at_groups(law, data):
    law(Keeping(), data)
