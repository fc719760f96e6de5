"""Drafts: which of their rows can be stored."""

import pytest

from dlstep.core import Request, SamplingParams, SpanSamples
from dlstep.core.contract import check_span
from dlstep.core.errors import WrongAnswer
from dlstep.strategies.self_speculation import SelfSpeculation
from dlstep.testing.scripted import ScriptedDriver

from ...helpers.decoding import CONFIG, SPEC, passes
from ...helpers.spans import changed


def test_only_rows_that_are_stored_like_final_ones_can_be_kept():
    strategy = SelfSpeculation(block_size=4)
    driver = ScriptedDriver(lambda span: SpanSamples(span.wanted.sampled, (0.9,) * len(span.wanted.sampled)))
    _, _, sequence = next(passes(CONFIG, strategy, Request(0, (1, 2), SamplingParams(max_tokens=8)), driver))
    draft = changed(strategy.schedule(sequence, SPEC), keeps_window=True)
    with pytest.raises(WrongAnswer, match="keeps_window=True needs joins=True"):
        check_span(strategy, sequence, draft, SPEC)
