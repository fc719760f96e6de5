"""The engine's side by itself: commands in, reports out."""

from collections.abc import Iterable
from dataclasses import replace
from multiprocessing import Pipe
from threading import Thread

import pytest

from dlstep import Plan, Samples, SamplingParams
from dlstep.core import Driver
from dlstep.engine.buffer_policy import policy_of
from dlstep.processes import Heart, Heartbeat
from dlstep.serve.engine_loop import EngineLoop, converse
from dlstep.serve.messages import Cancel, Card, Report, Submit

from ...helpers.serving import Paced, shadow_engine

PROMPT = tuple(range(5, 25))


def run(loop: EngineLoop) -> list[Report]:
    """The reports until nothing is left to tell."""
    found: list[Report] = []
    while not loop.idle:
        found.append(loop.step())
    return found


def tokens_of(reports: Iterable[Report], number: int) -> list[int]:
    """The answer of a request, put together."""
    return [token for report in reports for news in report.news if news.id == number for token in news.tokens]


def test_a_rejection_is_told_without_another_command() -> None:
    loop = EngineLoop(shadow_engine())
    loop.take([Submit(0, (1,), SamplingParams())])  # the mask
    (report,) = run(loop)
    (news,) = report.news
    assert news.ending is not None and news.ending.reason == "rejected" and "mask" in news.ending.error


def test_a_request_may_begin_and_end_in_one_step() -> None:
    loop = EngineLoop(shadow_engine())
    loop.take([Submit(0, PROMPT, SamplingParams(max_tokens=1))])
    (report,) = run(loop)
    assert [news.ending is not None for news in report.news] == [True] and len(report.news[0].tokens) == 1


def test_a_cancel_before_the_first_step_is_told() -> None:
    loop = EngineLoop(shadow_engine())
    loop.take([Submit(0, PROMPT, SamplingParams()), Cancel(0, "gone"), Cancel(7)])
    (report,) = run(loop)
    (news,) = report.news
    assert news.ending is not None and (news.ending.reason, news.ending.error) == ("abort", "gone")


def test_only_what_was_asked_for_is_told() -> None:
    loop = EngineLoop(shadow_engine())
    params = SamplingParams(max_tokens=40)
    loop.take([Submit(0, PROMPT, params), Submit(1, PROMPT, params, drafts=True, probabilities=True)])
    reports = run(loop)
    assert tokens_of(reports, 0) == tokens_of(reports, 1)
    plain, drafted = ([news for report in reports for news in report.news if news.id == number] for number in (0, 1))
    assert not any(news.cells or news.probabilities for news in plain)
    assert any(news.cells for news in drafted) and all(len(news.probabilities) == len(news.tokens) for news in drafted)


class Counting:
    """A driver that notes each plan and how many rows its forward has."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.rows, self.plans = driver, list[int](), list[Plan]()

    def run(self, plan: Plan) -> Samples:
        self.rows.append(sum(len(span.tokens) for span in plan.spans))
        self.plans.append(plan)
        return self.driver.run(plan)


def wasted_by(plans: list[Plan], broken_off: int) -> int:
    """Count one by one the rows of positions that an earlier plan had stored; of the request broken off, all rows."""
    stored, wasted = set[tuple[int, int]](), 0
    for span in (span for plan in plans for span in plan.spans):
        start = span.start + span.query_only
        final = {(span.id, position) for position in range(start, start + span.final_rows)}
        wasted += len(span.tokens) if span.id == broken_off else len(final & stored)
        stored |= final
    return wasted


def test_work_counts_what_the_device_did() -> None:
    engine = shadow_engine(num_pages=17)
    driver = Counting(engine.driver)
    loop = EngineLoop(replace(engine, driver=driver))
    loop.take([Submit(number, (*PROMPT, 30 + number), SamplingParams(max_tokens=60)) for number in range(6)])
    reports = [loop.step() for _ in range(4)]
    loop.take([Cancel(0)])
    reports += run(loop)
    work = [report.work for report in reports]
    assert sum(each.rows for each in work) == sum(driver.rows)
    assert sum(each.sampling_forwards + each.storing_forwards for each in work) == len(driver.rows)
    assert sum(each.prompt_tokens for each in work) == 6 * 21
    assert sum(each.cached_tokens for each in work) > 0, "equal prefixes are shared"
    assert sum(each.preemptions for each in work) > 0, "17 pages are not enough for all of them"
    assert 0 < sum(each.wasted for each in work) == wasted_by(driver.plans, 0) < sum(driver.rows)
    assert reports[-1].load[:3] == (0, 0, 0)


def test_a_driver_that_fails_for_good_ends_the_engine() -> None:
    engine = shadow_engine()
    assert isinstance(engine.driver, Paced)
    engine.driver.failures = [RuntimeError("broken") for _ in range(5)]
    loop = EngineLoop(engine)
    loop.take([Submit(number, PROMPT, SamplingParams(max_tokens=8)) for number in range(40)])  # more than one plan holds
    with pytest.raises(RuntimeError, match="broken"):
        run(loop)


def test_a_conversation_ends_when_the_pipe_closes_or_when_asked() -> None:
    for polite in (True, False):
        ours, theirs = Pipe()
        thread = Thread(target=converse, args=(shadow_engine(), Heart(theirs)))
        thread.start()
        assert isinstance(ours.recv(), Heartbeat)
        card = ours.recv()
        assert isinstance(card, Card) and card.name == "shadow" and card.folder is None
        ours.send((Submit(0, PROMPT, SamplingParams(max_tokens=100)),))
        assert any(isinstance(ours.recv(), Report) for _ in range(5))
        if polite:
            ours.send(None)
        ours.close()
        thread.join(5)
        assert not thread.is_alive()


def test_a_policy_counts_the_requests_that_come_together() -> None:
    policy = policy_of([{"max_requests": 2, "accept_threshold": 0.9}, {"accept_threshold": 0.1}])
    loop = EngineLoop(replace(shadow_engine(), buffer_policy=policy))
    params = SamplingParams(max_tokens=40)
    loop.take([Submit(0, PROMPT, params), Submit(1, PROMPT, params)])
    loop.take([Submit(2, PROMPT, params)])
    waiting = loop._decode.state.waiting
    assert [dict(each.request.params.strategy_options)["accept_threshold"] for each in waiting] == [0.9, 0.9, 0.1]
