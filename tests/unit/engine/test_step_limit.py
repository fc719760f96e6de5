"""The limit of a forward pass: whole for the first, usually less once warm, and never below what passes take."""

import subprocess
import sys

from hypothesis import given, strategies as st

from dlstep.engine.step_limit import SHARE, SLOWEST, WARM, StepLimit

SECONDS = st.floats(0.001, 1e6)


@given(SECONDS, st.lists(SECONDS, max_size=8))
def test_the_first_pass_has_the_whole_limit_and_later_ones_less_unless_they_are_slow(timeout, passes):
    limit = StepLimit(timeout)
    assert limit.seconds == timeout
    for number, seconds in enumerate(passes, 1):
        limit.note(seconds)
        slowest = max(passes[:number])
        assert min(timeout, WARM) <= limit.seconds <= timeout
        assert limit.seconds >= min(timeout, SLOWEST * slowest)
        assert limit.seconds <= max(WARM, timeout / SHARE, SLOWEST * slowest)


CODE = """
from dlstep.engine.step_limit import StepLimit
def endless():
    while True: pass
with StepLimit(9.0).enforced(): pass
with StepLimit(0.2).enforced(): endless()
"""


def test_a_body_beyond_the_limit_ends_the_process_with_the_line_that_runs():
    done = subprocess.run([sys.executable, "-c", CODE], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Timeout (0:00:00.2" in done.stderr and "line 4 in endless" in done.stderr
