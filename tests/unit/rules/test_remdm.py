"""ReMDM where it is another rule, by hand, and how often it masks."""

import pytest

from dlstep.core import SpanSamples, with_options
from dlstep.rules.remdm import ReMDM

from ...helpers.refusals import refused
from .by_hand import after, fresh, numbers, rows_of, shown


@pytest.mark.parametrize(
    "options, code",
    [
        ({"eta": 0.5}, "conflict"),
        ({"variant": "conf", "eta": 0.5}, "conflict"),
        ({"variant": "cap", "remask_count": 2}, "conflict"),
        ({"variant": "rescale", "t_on": 0.5}, "conflict"),
        ({"variant": "loop", "t_on": 0.01}, "out_of_range"),
        ({"variant": "loops"}, "invalid_value"),
    ],
)
def test_options_that_do_nothing_are_refused(options, code):
    with refused([*options][-1], code):
        with_options(ReMDM(), options)


@pytest.mark.parametrize("count, chances, expected", rows_of("remdm"))
def test_rows_of_remdm(count, chances, expected):
    found = numbers(chances)
    rule = ReMDM(steps_per_block=1, remask_forwards=1, remask_count=int(count))
    assert shown(after(rule, fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected
