"""The watchdog over a user's code: slow devices, interrupts, and timeouts that come late."""

import threading
import time
from typing import Any

import pytest

from dlstep.core import Spec, init
from dlstep.core.faults import UserCodeTimeout
from dlstep.engine.decode import Decode
from dlstep.engine.watchdog import POLL, WATCHDOG, limited
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import EOS, MASK, PIECES, VOCABULARY
from dlstep.testing.shadow import ShadowDriver

from ...property.test_blame import config, requests

SPEC = Spec(MASK, (EOS,), VOCABULARY, pieces=PIECES)
HEALTHY = 8
CARRIERS = (MultiBD(block_size=4, buffer_size=2), DualCache(block_size=4))


def test_watchdog_leaves_a_slow_device_alone():
    """Time that passes outside of user code is no fault of a request."""
    first = init(config(100, 64), CARRIERS[0])
    driver = ShadowDriver(4, 100, SPEC)

    class Slow:
        def run(self, plan: Any) -> Any:
            time.sleep(0.5)
            return driver.run(plan)

    decode = Decode(first, Slow(), prunes=False, user_code_timeout=0.1)
    decode.add(requests(0)[0])
    for _ in range(3):
        decode.step()
    assert not any(sequence.finish == "error" for sequence in decode.state.finished.values())


def test_watchdog_forgets_a_limit_that_an_interrupt_kept_from_being_left():
    """Otherwise it would inspect the thread for ever, and each inspection makes exceptions hold device memory."""

    def leave(outer: float | None) -> None:
        raise KeyboardInterrupt

    def step() -> None:
        with pytest.raises(KeyboardInterrupt):
            limited(0.1, lambda: None)
        assert threading.get_ident() in WATCHDOG._limits
        time.sleep(4 * POLL)
        left.append(threading.get_ident() not in WATCHDOG._limits)

    left: list[bool] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WATCHDOG, "leave", leave)
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
    assert left == [True]


def test_timeout_that_comes_after_its_call_is_no_fault():
    """The watchdog may raise in a thread whose call of user code has just returned."""
    decode = Decode(init(config(40, 64), CARRIERS[0]), ShadowDriver(4, 40, SPEC))
    late = iter([UserCodeTimeout(), None])

    def call() -> str:
        if (error := next(late)) is not None:
            raise error
        return "called again"

    assert decode._without_faulty(call) == "called again"
