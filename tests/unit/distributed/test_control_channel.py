"""Messages of ranks in a step, and when they are sent."""

import pytest

from dlstep import LLM, SamplingParams
from dlstep.core import Request, add, schedule
from dlstep.distributed.control_channel import connect
from dlstep.distributed.ranks import Ranks
from dlstep.driver import TorchDriver


class Apart(Ranks):
    """Two ranks on two hosts."""

    def gather_objects(self, value):
        return ["first-host", "other-host"]


def test_ranks_on_several_hosts_are_refused_by_name():
    with pytest.raises(ValueError, match="tensor_parallel_size=2: ranks are on the hosts first-host, other-host"):
        connect(Apart(0, 2, ""))


@pytest.fixture(scope="module")
def driver_and_plan():
    engine = LLM(num_threads=1).engine
    assert isinstance(engine.driver, TorchDriver)
    return engine.driver, schedule(add(engine.first, Request(0, (5, 6, 7), SamplingParams(max_tokens=4))))


def test_digests_are_compared_before_a_pass(driver_and_plan, monkeypatch):
    driver, plan = driver_and_plan
    executor, order = driver._caches.main.executor, []
    lowered = executor._lowered

    def started(gathered):
        order.append("started")
        return lowered(gathered)

    monkeypatch.setattr(executor, "_lowered", started)
    driver.start(plan, 0, lambda: order.append("compared")).wait()
    assert order == ["compared", "started"]
