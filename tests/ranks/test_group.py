"""Groups of ranks, each of which runs the core: answers as of one process, and what happens when ranks part or die."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Timer
from typing import Any

import pytest
from ranks_running import run_ranks

from dlstep import LLM, SamplingParams, tiny
from dlstep.config import EngineConfig
from dlstep.core import DlstepError, Plan, Request, Rows, Samples
from dlstep.decode import Decode
from dlstep.driver.conductor import Conductor, End, RanksDisagree, follow, tell
from dlstep.driver.crew import Crew
from dlstep.engine import load_with
from dlstep.models.ranks import ALONE, Ranks
from dlstep.strategies import own

SOFT = {"dmax"}  # feeds probabilities, which round otherwise than those of one process, so its lines are others
FEW, REQUESTS = 24, 200
SOON = 5.0  # seconds in which everybody hears of a rank that is gone
Answers = tuple[list[tuple[int, ...]], list[Any], list[int], int]


def config_of(strategy: str, **options: Any) -> EngineConfig:
    """The embedded model of a strategy, with fewer pages than its requests would like."""
    return EngineConfig(
        decoding_strategy=strategy, max_num_reqs=8, num_pages=60, max_model_len=128, page_size=4, num_threads=1, **options
    )


def crowd(decode: Decode, count: int) -> Answers:
    """Requests that trickle in, every seventh of which is aborted later: answers, endings, lines, and how many gave way."""
    prompts = [problem.prompt for problem in tiny.problems(count, seed=3)]
    tokenizer = LLMS.tokenizer
    sent, lines, preempted, gone = 0, [], 0, {}
    while sent < count or not decode.state.done:
        for _ in range(min(1 + sent % 5, count - sent)):
            hot = sent % 3 == 0 and decode.state.config.spec.mask_id is not None
            params = SamplingParams(max_tokens=8 + sent % 40, temperature=0.6 if hot else 0.0, top_k=20 if sent % 6 == 0 else 0)
            decode.add(Request(sent, tuple(tokenizer.encode(prompts[sent]))[:60], params, index=sent))
            sent += 1
        if decode.state.step % 7 == 3 and decode.state.live:
            decode.abort(max(decode.state.live))
        before = set(decode.state.running and [each.request.arrival for each in decode.state.running])
        for update in decode.step():
            if update.ending is not None:
                gone[update.id] = update.sequence.answer, update.ending.reason
        waiting = {each.request.arrival for each in decode.state.waiting}
        preempted += len(before & waiting)
        lines.append(decode.state.line)
    return [gone[number][0] for number in range(count)], [gone[number][1] for number in range(count)], lines, preempted


class LLMS:
    """What all embedded models share."""

    tokenizer: Any = None


def crowds(ranks: Ranks, strategies: list[str], count: int) -> dict[str, Answers]:
    """The answers to a crowd for each strategy; ranks other than the first follow, and have none."""
    found: dict[str, Answers] = {}
    kept = []
    for strategy in strategies:
        crew = Crew(ranks, [], [], None)
        kept.append((crew, engine := load_with(config_of(strategy), lambda crew=crew: crew)))
        if ranks.rank:
            follow(engine.driver, ranks)
            continue
        LLMS.tokenizer = engine.tokenizer
        found[strategy] = crowd(Decode(engine.first, engine.driver), count)
        if ranks.several:
            crew.lost = "the test is over"
            tell(End())
    return found


CASES = [
    pytest.param(2, FEW, marks=pytest.mark.slow),
    pytest.param(2, REQUESTS, marks=pytest.mark.stress),
    pytest.param(4, REQUESTS, marks=pytest.mark.stress),
]


@pytest.mark.parametrize(("size", "count"), CASES)
def test_a_crowd_is_answered_as_by_one_process(size: int, count: int, report: Callable[[str], None]):
    """Every strategy on its embedded model: texts, endings and lines are equal; some requests gave way to older ones."""
    strategies = sorted(own())
    alone = crowds(ALONE, strategies, count)
    found = run_ranks(size, crowds, strategies, count)[0]
    for strategy in strategies:
        (answers, endings, lines, _), whole = found[strategy], alone[strategy]
        assert answers == whole[0], strategy
        assert endings == whole[1], strategy
        assert (lines == whole[2]) is (strategy not in SOFT), strategy
    preempted = {strategy: answers[3] for strategy, answers in alone.items()}
    report(f"{size} ranks: {len(strategies)} strategies x {count} requests equal one process; gave way: {preempted}")
    assert sum(preempted.values())


class Lying:
    """A driver that gives one token another number, in one forward."""

    def __init__(self, driver: Any, step: int) -> None:
        self.driver, self.step = driver, step

    def run(self, plan: Plan) -> Samples:
        samples = self.driver.run(plan)
        if plan.step != self.step:
            return samples
        first, *others = samples.rows
        changed = Rows(((first.tokens[0] + 1) % 5 + 3, *first.tokens[1:]), first.probabilities)
        return Samples(plan, (replace(first, tokens=changed.tokens), *others))

    def fork(self, line: int) -> bool:
        return self.driver.fork(line)

    def release(self, line: int) -> None:
        self.driver.release(line)


def parting(ranks: Ranks, step: int) -> str:
    """What each rank says when the last one lies about a forward."""
    crew = Crew(ranks, [], [], None)
    engine = load_with(config_of("multi_bd"), lambda: crew)
    LLMS.tokenizer = engine.tokenizer
    try:
        if ranks.rank == 0:
            assert isinstance(engine.driver, Conductor)
            crowd(Decode(engine.first, engine.driver), 20)
        else:
            follow(Lying(engine.driver, step) if ranks.rank == ranks.size - 1 else engine.driver, ranks)
    except RanksDisagree as error:
        return str(error)
    return "nobody noticed"


@pytest.mark.parametrize("step", [0, 5])
def test_ranks_that_part_all_stop_and_name_the_step(step: int):
    for said in run_ranks(2, parting, step):
        assert said.startswith(f"step {step + 1}: ranks disagree, rank 0 has "), said


@pytest.fixture(scope="module")
def whole() -> LLM:
    return LLM(num_threads=1)


def test_a_call_equals_one_process_and_a_rank_that_is_killed_ends_it(whole: LLM):
    prompts = [problem.prompt for problem in tiny.problems(16, seed=1)]
    params = SamplingParams(max_tokens=40)
    llm = LLM(tensor_parallel_size=2, num_threads=1)
    expected = whole.generate(prompts, params, progress=False)
    found = llm.generate(prompts, params, progress=False)
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
    conductor: Any = llm.engine.driver
    pid, killed = conductor._crew.pids[0], []

    def kill() -> None:
        os.kill(pid, signal.SIGKILL)
        killed.append(time.monotonic())

    Timer(0.3, kill).start()
    with pytest.raises(DlstepError, match="rank 1 of 2 is gone: its process ended with exit code -9"):
        llm.generate(prompts * 100, params, progress=False)
    assert time.monotonic() - killed[0] < SOON
    with pytest.raises(DlstepError, match="rank 1 of 2 is gone"):
        llm.generate(prompts, params, progress=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cuda:1"}, "device='cuda:1' is one device"),
        ({"tensor_parallel_size": 3}, "tensor_parallel_size=3 does not fit"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size"),
    ],
)
def test_what_ranks_cannot_have_is_told(options: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        LLM(**({"tensor_parallel_size": 2} | options))
