"""ReMDM where it is another rule, by hand, and how often it masks."""

import re

import pytest

from dlstep.core import SpanSamples, with_options
from dlstep.rules.remdm import ReMDM

from .by_hand import after, fresh, numbers, rows_of, shown


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eta": 0.5}, "ReMDM.eta=0.5 does nothing with variant='llada': leave it out, or choose 'cap' or 'rescale' or 'loop'"),
        ({"variant": "conf", "eta": 0.5}, "ReMDM.eta=0.5 does nothing with variant='conf'"),
        ({"variant": "cap", "remask_count": 2}, "ReMDM.remask_count=2 does nothing with variant='cap'"),
        ({"variant": "rescale", "t_on": 0.5}, "ReMDM.t_on=0.5 does nothing with variant='rescale'"),
        ({"variant": "loop", "t_on": 0.01}, "ReMDM.t_on=0.01 must not be below t_off=0.05"),
        ({"variant": "loops"}, "ReMDM.variant must be one of 'llada'"),
    ],
)
def test_options_that_do_nothing_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        with_options(ReMDM(), options)


@pytest.mark.parametrize(("count", "chances", "expected"), rows_of("remdm"))
def test_rows_of_remdm(count: str, chances: str, expected: str) -> None:
    found = numbers(chances)
    rule = ReMDM(steps_per_block=1, remask_forwards=1, remask_count=int(count))
    assert shown(after(rule, fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected
