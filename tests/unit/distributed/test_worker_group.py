"""A rank that dies or stops, at any moment, ends a call with an error that names it and says why; no process is left."""

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from dlstep import LLM, SamplingParams
from dlstep.core import CacheMismatch, DlstepError
from dlstep.distributed import worker_group
from dlstep.distributed.rank_zero import follow_rank_zero
from dlstep.engine import loader
from dlstep.processes import worker

from ...helpers.crowds import Case, crowd
from ...helpers.drivers import Around
from ...helpers.ranks_running import prepared, run_ranks
from ...helpers.waiting import until
from .rank_faults import AT_START, FAULTS, IN_A_STEP, rank_with

LIMIT = 4.0  # seconds without a sign of life
SOON = 60.0  # seconds in which a call has ended in any case, on a machine that is busy
QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"


@pytest.fixture
def fast(monkeypatch):
    """Ranks are forked from a process that has imported torch, which takes longest."""
    monkeypatch.setattr(worker, "get_context", lambda _: prepared())
    monkeypatch.setattr(worker_group, "START", SOON)
    monkeypatch.setattr(worker, "IMPORT_SECONDS", LIMIT)


@pytest.fixture
def started(monkeypatch):
    """The processes of ranks that a test starts; none may be left at its end."""
    pids = []
    start = worker_group.Worker.__init__

    def noted(self, *args, **options):
        start(self, *args, **options)
        pids.append(self.pid)

    monkeypatch.setattr(worker_group.Worker, "__init__", noted)
    yield pids
    assert pids
    until(lambda: not any(map(lives, pids)), SOON, lambda: f"ranks are left: {[*filter(lives, pids)]}")


def lives(pid):
    """Whether a process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


MOMENTS = ("unpickling", *AT_START, *IN_A_STEP)
# One of each fault and of each moment, and SIGSTOP and kill -9 where ranks wait for one another in different ways.
FEW = (
    *(("unpickling", "import"), ("arriving", "stop"), ("arriving", "mistake"), ("loading", "memory"), ("calling", "kill")),
    *(
        ("calling", "stop"),
        ("message", "stop"),
        ("digest", "exit"),
        ("digest", "stop"),
        ("forward", "bug"),
        ("forward", "kill"),
    ),
    *(("forward", "stop"), ("commit", "sys_exit"), ("loading", "failed_forward")),
)


@pytest.mark.usefixtures("fast", "started")
@pytest.mark.parametrize(
    "moment, fault",
    [
        pytest.param(moment, fault, marks=() if (moment, fault) in FEW else pytest.mark.stress)
        for moment in MOMENTS
        for fault in FAULTS
    ],
)
def test_a_fault_of_a_rank_ends_the_call_with_its_reason(moment, fault, monkeypatch):
    """The call ends in time, and so does each call after it."""
    monkeypatch.setattr(loader, "run_rank", rank_with(moment, fault))
    llm = []
    begin = time.monotonic()
    with pytest.raises(DlstepError) as caught:
        llm.append(LLM(tensor_parallel_size=2, num_threads=1, rank_timeout=LIMIT))
        llm[0].generate(QUESTION, SamplingParams(max_tokens=24))
    assert time.monotonic() - begin < SOON
    assert re.match("rank 1 of 2 ", str(caught.value)), caught.value
    assert FAULTS[fault][1] in str(caught.value)
    assert bool(llm) == (moment in IN_A_STEP)
    for each in llm:
        with pytest.raises(DlstepError, match="rank 1 of 2 "):
            each.generate(QUESTION)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_a_fault_of_an_idle_rank_is_noticed_before_the_next_call(fault, started):
    llm = LLM(tensor_parallel_size=2, num_threads=1, rank_timeout=LIMIT)
    reasons = []
    rank_zero = llm.engine.driver
    rank_zero.when_lost(reasons.append)
    os.kill(started[0], getattr(signal, f"SIG{fault.upper()}"))
    until(lambda: reasons, SOON)
    assert FAULTS[fault][1] in reasons[0]
    with pytest.raises(DlstepError, match=re.escape(reasons[0])):
        llm.generate(QUESTION)


class Broken(Around):
    """A driver of rank 0 that fails in its second forward pass, after the digests were compared or before."""

    def __init__(self, driver, error, *, compared):
        super().__init__(driver)
        self.error, self.compared, self.forwards = error, compared, 0

    def start(self, plan, owner, agree):
        self.forwards += 1
        if self.forwards < 2:
            return super().start(plan, owner, agree)
        if self.compared:
            agree()
        raise self.error


@pytest.mark.usefixtures("fast", "started")
@pytest.mark.parametrize(
    "error, compared",
    [(KeyError("page 7"), True), (ValueError("a shape"), False), (MemoryError("1 TiB"), True), (SystemExit(1), True)],
)
def test_any_exception_of_rank_0_within_a_forward_pass_ends_the_group(error, compared):
    """Otherwise the other ranks would wait for sums, and the next call with them."""
    llm = LLM(tensor_parallel_size=2, num_threads=1, rank_timeout=LIMIT)
    rank_zero = llm.engine.driver
    rank_zero._driver = Broken(rank_zero._driver, error, compared=compared)
    name = type(error).__name__
    with pytest.raises(SystemExit if name == "SystemExit" else DlstepError, match="1" if name == "SystemExit" else name):
        llm.generate(QUESTION)
    with pytest.raises(DlstepError, match=name):
        llm.generate(QUESTION)


class Forgetful(Around):
    """A driver that has lost its KV cache in one forward pass, and knows it before or finds it out."""

    def __init__(self, driver, step, *, knows):
        super().__init__(driver)
        self.step, self.knows = step, knows

    def holds(self, plan, owner):
        return self.driver.holds(plan, owner) and not (self.knows and plan.step == self.step)

    def start(self, plan, owner, agree):
        if plan.step == self.step:
            agree()
            raise CacheMismatch("nothing is held")
        return super().start(plan, owner, agree)


def forgetting(ranks, who, knows):
    """The error on each rank when one has lost its KV cache."""
    group = worker_group.WorkerGroup(ranks)
    engine = loader.build_engine(Case("multi_bd").config, lambda _: group)
    driver = engine.driver
    try:
        if ranks.rank == 0:
            if who == 0:
                driver._driver = Forgetful(driver._driver, 3, knows=knows)
            crowd(engine, 8)
        else:
            follow_rank_zero(Forgetful(driver, 3, knows=knows) if who == ranks.rank else driver, ranks)
    except (DlstepError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nobody noticed"


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("who", [0, 1])
def test_a_cache_that_one_rank_alone_has_lost_ends_the_group(who, knows):
    """On one rank only, a mismatch of digests would leave the others in a forward pass that it takes no part in."""
    errors = run_ranks(2, forgetting, who, knows)
    if knows:
        assert all(each.startswith("RanksDisagree: step 3: ranks disagree, rank 0 has ") for each in errors), errors
    else:
        assert f"RanksDisagree: step 3: rank {who} alone lost its KV cache" in errors[who]
        assert "nobody noticed" not in errors


SCRIPT = f"""
import os, sys
from dlstep import LLM
if __name__ == "__main__":
    llm = LLM(tensor_parallel_size=2, num_threads=1, rank_timeout=600)
    print(llm.engine.driver._group.pids[0], flush=True)
    if sys.argv[1] == "idle":
        sys.stdin.readline()
        sys.exit(0)
    while True:
        llm.generate([{QUESTION!r}] * 8, progress=False)
"""


@pytest.mark.stress
@pytest.mark.parametrize(
    "of_rank, of_first", [("none", "killed"), ("none", "stopped and killed"), ("none", "exits"), ("stopped", "exits")]
)
def test_no_rank_outlives_rank_0(of_rank, of_first, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "idle" if of_first == "exits" else "busy"]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        rank = int(first.stdout.readline())
        assert lives(rank)
        time.sleep(1.0)  # in a step
        if of_rank == "stopped":
            os.kill(rank, signal.SIGSTOP)
        if of_first == "exits":
            print(file=first.stdin, flush=True)
            assert first.wait(SOON) == 0
        else:
            if of_first == "stopped and killed":
                first.send_signal(signal.SIGSTOP)
                time.sleep(1.0)
            first.kill()
        until(lambda: not lives(rank), SOON)
    finally:
        first.kill()
        first.communicate()  # closes its pipes
