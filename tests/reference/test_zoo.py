"""Every decoding rule against its slow loop, on grids and on canvases."""

from random import Random

import pytest

from dlstep.core import Rule
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold

from .zoo import Make, Slow, View, check_on_canvases, check_on_grids

THRESHOLDS = (0.0, 0.3, 0.5, 0.6, 0.9, 1.0)


def threshold(random: Random) -> tuple[Rule, Slow]:
    accept, inclusive = random.choice(THRESHOLDS), random.random() < 0.5

    def slow(view: View) -> None:
        sure = {position: view.confidence(position) for position in view.masked}
        chosen = [position for position in sure if sure[position] > accept or (inclusive and sure[position] == accept)]
        view.unmask(chosen or (view.top(1, view.confidence) if view.must else []))

    return Threshold(accept, inclusive=inclusive), slow


def quota(random: Random) -> tuple[Rule, Slow]:
    steps = random.choice((None, 1, 2, 3, 9))

    def slow(view: View) -> None:
        size = len(view.positions)
        share, over = divmod(size, steps or size)
        view.unmask(view.top(max(1, share + (view.number < over)), view.confidence))

    return Quota(steps), slow


ON_GRIDS: list[Make] = [threshold, quota]
ON_CANVASES: list[Make] = [threshold, quota]


@pytest.mark.parametrize("make", ON_GRIDS, ids=lambda make: make.__name__)
def test_rules_of_grids(make: Make) -> None:
    check_on_grids(make)


@pytest.mark.parametrize("make", ON_CANVASES, ids=lambda make: make.__name__)
def test_rules_of_canvases(make: Make) -> None:
    check_on_canvases(make)
