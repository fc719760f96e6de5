"""Rows of tables on the rules' pages, and options that contradict one another."""

import pytest

from dlstep.core import SpanSamples, with_options
from dlstep.rules.quota import Quota
from dlstep.rules.remdm import ReMDM
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.rules.saber import Saber
from dlstep.rules.threshold import Threshold

from ...helpers.decoding import SPEC
from ...helpers.passes import pass_of
from ...helpers.refusals import refused
from .by_hand import begun, fresh, numbers, rows_of, shown

BY_HAND = {
    "remdm": lambda count: ReMDM(steps_per_block=1, remask_forwards=1, remask_count=count),
    "running_confidence": RunningConfidence,
    "saber": Saber,
}


@pytest.mark.parametrize("name, number, chances, expected", [(name, *row) for name in BY_HAND for row in rows_of(name)])
def test_rows_by_hand(name, number, chances, expected):
    rule, found = BY_HAND[name](int(number)), numbers(chances)
    block, samples = fresh(len(found)), SpanSamples(tuple(range(len(found))), found)
    after = rule.commit(pass_of(rule, begun(rule, block), block, samples, SPEC))
    assert shown(after) == expected


@pytest.mark.parametrize(
    "rule, options",
    [
        (Quota, {"order": "independent"}),
        (Quota, {"order": "random", "order_temperature": 0.5}),
        (Quota, {"schedule": "dream", "dynamic_threshold": 0.9}),
        (Quota, {"schedule": "dream", "order": "independent", "eos_last": True}),
        (Threshold, {"order": "entropy", "accept_threshold": 0.5}),
        (Threshold, {"order": "entropy", "falling": 0.3}),
        (Threshold, {"entropy_threshold": 0.4}),
        (ReMDM, {"eta": 0.5}),
        (ReMDM, {"variant": "conf", "eta": 0.5}),
        (ReMDM, {"variant": "cap", "remask_count": 2}),
        (ReMDM, {"variant": "rescale", "t_on": 0.5}),
    ],
)
def test_options_that_do_nothing_are_refused(rule, options):
    with refused([*options][-1], "conflict"):
        with_options(rule(), options)


def test_variants_of_remdm_are_checked():
    with refused("t_on", "out_of_range"):
        ReMDM("loop", t_on=0.01)
    with refused("variant", "invalid_value"):
        with_options(ReMDM(), {"variant": "loops"})
