"""WeDLM: which rules it refuses."""

import pytest

from dlstep.core import init
from dlstep.rules.quota import Quota
from dlstep.rules.remdm import ReMDM
from dlstep.strategies.wedlm import WeDLM

from ...helpers.decoding import CONFIG
from ...helpers.refusals import refused


@pytest.mark.parametrize("rule", [Quota(), ReMDM()])
def test_rules_that_plan_a_whole_block_or_remask_are_refused(rule):
    with refused("rule", "unsupported"):
        init(CONFIG, WeDLM(rule=rule))
