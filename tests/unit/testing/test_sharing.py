"""Drivers that followers of a leader run."""

import random

import pytest

from dlstep.core import (
    Request,
    SamplingParams,
    init,
)
from dlstep.engine.decode import Decode
from dlstep.testing.harness import shadow

from ...helpers.leading import Follower, LeadingDriver
from ...helpers.recorded import setting


@pytest.mark.parametrize("heard", [False, True])
def test_leader_that_misses_an_event_is_sent_the_state(heard, monkeypatch):
    config, value = setting("multi_bd", random.Random(0))
    decode = Decode(init(config, value), LeadingDriver(shadow(config, value)))
    apply, left = Follower.apply, [KeyboardInterrupt()]

    def applying(self, event):
        if heard or not left:
            apply(self, event)
        if left:
            raise left.pop()

    monkeypatch.setattr(Follower, "apply", applying)
    with pytest.raises(KeyboardInterrupt):
        decode.add(Request(0, (1, 2, 3), SamplingParams(max_tokens=5)))
    decode.add(Request(1, (4, 5), SamplingParams(max_tokens=5)))  # of these two the leader may have heard of this one only
    ended = []
    while not decode.state.done:
        ended += [update.id for update in decode.step() if update.finish_info is not None]  # `Follower` compares the plans
    assert sorted(ended) == [0, 1]
