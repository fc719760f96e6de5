"""The threshold rule, on confidences and on entropies."""

import pytest

from dlstep.rules.threshold import Threshold

from ...helpers.refusals import refused


@pytest.mark.parametrize(
    "options",
    [
        {"order": "entropy", "accept_threshold": 0.5},
        {"order": "entropy", "falling": 0.3},
        {"entropy_threshold": 0.4},
    ],
)
def test_options_of_the_other_order_are_refused(options):
    with refused([*options][-1], "conflict"):
        Threshold(**options)
