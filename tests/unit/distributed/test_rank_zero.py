"""Groups of ranks, each of which runs the core: answers as of one process, and what happens when ranks disagree or die."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from threading import Timer
from types import SimpleNamespace

import pytest

from dlstep import LLM, SamplingParams, tiny
from dlstep.core import DlstepError, Samples
from dlstep.distributed.control_channel import RanksDisagree
from dlstep.distributed.rank_zero import End, RankZeroDriver, follow_rank_zero
from dlstep.distributed.ranks import ALONE
from dlstep.distributed.worker_group import WorkerGroup
from dlstep.driver.warmup import buckets_for
from dlstep.engine.loader import build_engine

from ...helpers.crowds import EMBEDDED, Case, Lent, crowd, crowds, flips
from ...helpers.drivers import Around
from ...helpers.faulty import FaultyChoice
from ...helpers.ranks_running import run_ranks
from ...helpers.tiny_families import FACTS, write_checkpoint

FEW, REQUESTS = 24, 200
SOON = 10.0  # seconds in which everybody hears of a rank that is gone, on a machine that is busy


def compare(size, cases, count, report):
    """Let one process and ranks answer the same crowds; how many requests gave way."""
    preempted = 0
    for case, whole, found in zip(cases, crowds(ALONE, cases, count), run_ranks(size, crowds, cases, count)[0], strict=True):
        told = flips(case.name, whole, found, exact=case.exact)
        fed = any(span.rows.soft is not None for asked in whole.asked for span, _ in asked)
        if not told and not fed:  # what is fed back rounds otherwise than in one process, so digests differ
            assert found.cache_digests == whole.cache_digests, case.name
        preempted += whole.preempted
        report(
            "\n".join([f"{size} ranks, {case.name}: {count} requests, {whole.preempted} gave way, {len(told)} flips", *told])
        )
    return preempted


def test_a_crowd_is_answered_as_by_one_process(report):
    """Every strategy on its embedded model: texts, finish reasons and cache digests are equal; some requests are preempted."""
    assert compare(2, [*map(Case, EMBEDDED)], FEW, report)


@pytest.mark.stress
@pytest.mark.parametrize("size", [2, 4])
def test_a_large_crowd_is_answered_as_by_one_process(size, tmp_path, report):
    """Embedded models, and a random network of every family, on which sums in another order may flip a near tie."""
    random = []
    for family in FACTS:
        if family == "diffusion_gemma":  # a random one multiplies roundings: test_sharding compares it in float64
            continue
        write_checkpoint(tmp_path / family, family, heads=(4, 2))
        random.append(Case(None, str(tmp_path / family)))
    assert compare(size, [*map(Case, EMBEDDED), *random], REQUESTS, report)


@pytest.mark.stress
def test_the_script_for_two_devices_also_runs_without_them(tmp_path):
    """The script exits with 1 if one of its parts fails."""
    subprocess.run([sys.executable, "-m", "tests.gpu.run_on_devices", tmp_path, "--cpu"], check=True)


class Lying(Around):
    """A driver that gives one token another number, in one forward pass."""

    def __init__(self, driver, step):
        super().__init__(driver)
        self.step = step

    def start(self, plan, owner, agree):
        pending = super().start(plan, owner, agree)
        if plan.step != self.step:
            return pending
        return SimpleNamespace(wait=lambda: self._changed(plan, pending.wait()))

    def _changed(self, plan, samples):
        first, *others = samples.spans
        return Samples(plan, (replace(first, tokens=((first.tokens[0] + 1) % 5 + 3, *first.tokens[1:])), *others))


def disagreeing(ranks, step):
    """The error on each rank when the last one lies about a forward pass."""
    group = WorkerGroup(ranks)
    engine = build_engine(Case("multi_bd").config, lambda _: group)
    try:
        if ranks.rank == 0:
            assert isinstance(engine.driver, RankZeroDriver)
            crowd(engine, 20)
        else:
            follow_rank_zero(Lying(engine.driver, step) if ranks.rank == ranks.size - 1 else engine.driver, ranks)
    except RanksDisagree as error:
        return str(error)
    return "nobody noticed"


@pytest.mark.parametrize("step", [0, 5])
def test_ranks_that_disagree_all_stop_and_name_the_step(step):
    for said in run_ranks(2, disagreeing, step):
        assert said.startswith(f"step {step + 1}: ranks disagree, rank 0 has "), said


def captured(ranks, strategies):
    """The sizes that a rank would capture at the start, in their order."""
    found = []
    for strategy in strategies:
        group = Lent(ranks)
        engine = build_engine(Case(strategy, None, {"capture_graphs": "start"}).config, lambda _, group=group: group)
        driver = engine.driver._driver if isinstance(engine.driver, RankZeroDriver) else engine.driver
        sizes = buckets_for(engine.first.config, engine.first.strategy, driver.network, driver._target)
        found.append([bucket for _, buckets in sizes for bucket in buckets])
        if ranks.rank:
            follow_rank_zero(driver, ranks)
        else:
            engine.driver._channel.send(End())
            group.lost = "the test is over"
    return found


def test_ranks_capture_the_same_sizes_in_the_same_order():
    """Sums of ranks are captured with the rest: they meet only if all ranks capture alike."""
    first, second = run_ranks(2, captured, ["multi_bd", "dmax", "diffusion_gemma"])
    assert first == second
    assert all(len(sizes) > 4 for sizes in first)


@pytest.fixture(scope="module")
def whole():
    return LLM(num_threads=1)


class Interrupted(Around):
    """A driver that is interrupted, so many times, in the middle of its third forward pass."""

    def __init__(self, driver, times):
        super().__init__(driver)
        self.times, self.forwards = times, 0

    def start(self, plan, owner, agree):
        self.forwards += 1
        for _ in range(self.times if self.forwards == 3 else 0):
            signal.raise_signal(signal.SIGINT)
        return super().start(plan, owner, agree)


def interrupted(llm, prompts, params, expected):
    """An interrupt waits for the end of a forward pass, and the LLM is as good as before."""
    rank_zero = llm.engine.driver
    driver, handler = rank_zero._driver, signal.getsignal(signal.SIGINT)
    rank_zero._driver = Interrupted(driver, 1)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(prompts, params)
    session = llm.session()
    session.submit(prompts[0], params)
    rank_zero._driver = Interrupted(driver, 1)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    session.run()
    assert session.output(0).token_ids == expected[0].token_ids
    rank_zero._driver = driver
    found = llm.generate(prompts, params)
    assert [each.token_ids for each in found] == [each.token_ids for each in expected]
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_interrupt_of_a_forward_pass_ends_the_group():
    llm = LLM(tensor_parallel_size=2, num_threads=1)
    rank_zero = llm.engine.driver
    rank_zero._driver = Interrupted(rank_zero._driver, 2)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(QUESTION)
    with pytest.raises(DlstepError, match="interrupted twice: create the LLM again"):
        llm.generate(QUESTION)


def test_a_call_equals_one_process_and_a_rank_that_is_killed_ends_it(whole):
    prompts = [problem.prompt for problem in tiny.problems(16, seed=1)]
    params = SamplingParams(max_tokens=40)
    llm = LLM(tensor_parallel_size=2, num_threads=1)
    expected = whole.generate(prompts, params)
    found = llm.generate(prompts, params)
    assert [each.token_ids for each in found] == [each.token_ids for each in expected]
    session = llm.session()
    session.submit(prompts[0], params)
    session.step()
    session.step()
    branch = session.fork()
    session.back(1)
    for each in (session, branch):
        each.run()
        assert each.output(0).token_ids == expected[0].token_ids
    rank_zero = llm.engine.driver
    pid, killed = rank_zero._group.pids[0], []

    def kill():
        os.kill(pid, signal.SIGKILL)
        killed.append(time.monotonic())

    interrupted(llm, prompts, params, expected)
    Timer(0.3, kill).start()
    with pytest.raises(DlstepError, match="rank 1 of 2 was killed by SIGKILL"):
        llm.generate(prompts * 20, params)
    assert time.monotonic() - killed[0] < SOON
    with pytest.raises(DlstepError, match="rank 1 of 2 was killed by SIGKILL"):
        llm.generate(prompts, params)


def test_a_faulty_rule_ends_only_its_request_on_all_ranks(whole):
    """The other ranks meet the same fault when they commit, and stay in step with rank 0."""
    prompts = [problem.prompt for problem in tiny.problems(6, seed=1)]
    params = [SamplingParams(max_tokens=24) for _ in prompts]
    expected = whole.generate(prompts, params)
    params[2] = replace(params[2], strategy_options={"rule": FaultyChoice("no rows", after=2)})
    found = LLM(tensor_parallel_size=2, num_threads=1).generate(prompts, params)
    assert found[2].finish_reason == "error" and "FaultyChoice.chosen" in found[2].error
    for number in (0, 1, 3, 4, 5):
        assert found[number].token_ids == expected[number].token_ids


@pytest.mark.parametrize(
    "size, said",
    [(3, "tensor_parallel_size=3 does not fit"), (0, "tensor_parallel_size")],
)
def test_what_ranks_cannot_have_is_told(size, said):
    with pytest.raises(ValueError, match=said):
        LLM(tensor_parallel_size=size)


QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
SCRIPT = f"""
from dlstep import LLM, SamplingParams
llm = LLM(tensor_parallel_size=2, num_threads=1)
print(llm.generate([{QUESTION!r}], SamplingParams(max_tokens=24)))
print("by the first rank only", llm.engine.ranks)
"""


@pytest.mark.stress
def test_what_torchrun_started_is_the_group(tmp_path, whole):
    """The script of rank 0 goes on with an LLM of two ranks; in the other process `LLM(...)` works for it."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("by the first rank only") == 1
    (expected,) = whole.generate([QUESTION], SamplingParams(max_tokens=24))
    assert expected.text.strip() and expected.text.strip() in done.stdout
