"""Options of a strategy, of its rule and of a rule inside that one, by flat names."""

import pytest

from dlstep.core import Request, SamplingParams, with_options
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.quota import Quota
from dlstep.rules.sliding import Sliding
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache

from ...helpers.decoding import waiting


def test_options_of_the_inner_rule_are_options_of_the_outer_one():
    canvas = DualCache(rule=Sliding())
    assert with_options(canvas, {"accept_threshold": 0.4, "window": 5}).rule == Sliding(5, inner=Threshold(0.4, inclusive=True))
    assert with_options(canvas, {"inner": Quota(), "steps_per_block": 3}).rule == Sliding(inner=Quota(3))
    given = {"rule": AdaBlock(), "inner": Quota(), "steps_per_block": 3, "look_ahead": 0.5}
    assert with_options(canvas, given).rule == AdaBlock(look_ahead=0.5, inner=Quota(3))
    with pytest.raises(ValueError, match="DualCache has no option 'steps_per_block'"):
        with_options(canvas, {"steps_per_block": 3})
    params = SamplingParams(strategy_options=(("accept_threshold", 0.1),))
    assert waiting(canvas, Request(0, (1,), params)).request.strategy.rule.inner.accept_threshold == 0.1
