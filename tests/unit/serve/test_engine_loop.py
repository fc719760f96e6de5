"""The engine loop alone: commands in, reports out."""

from collections import Counter
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread, get_ident

import pytest

from dlstep import SamplingParams, tiny
from dlstep.core import Request
from dlstep.core.automaton import ANY
from dlstep.core.constraint import bound
from dlstep.core.lifecycle import checked
from dlstep.driver import tables
from dlstep.engine.buffer_policy import policy_of
from dlstep.engine.decode import constrained
from dlstep.processes import Heart, Heartbeat
from dlstep.serve.engine_loop import EngineLoop, execute_commands, known_facts
from dlstep.serve.messages import Cancel, Facts, StepReport, Submit, description_of
from dlstep.testing.edges import PlainEdges

from ...helpers.serving import shadow_engine

PROMPT = tuple(range(5, 25))


def started(engine):
    """Return our end of the pipe to an engine in a thread, and the thread."""
    ours, engine_pipe = Pipe()
    thread = Thread(target=execute_commands, args=(engine, Heart(engine_pipe)))
    thread.start()
    return ours, thread


def run(loop):
    """Return the reports until the loop is idle."""
    reports = []
    while not loop.idle:
        reports.append(loop.step())
    return reports


def tokens_of(reports, number):
    """Return the joined answer of a request."""
    return [token for report in reports for news in report.news if news.id == number for token in news.tokens]


def test_only_requested_fields_are_reported():
    loop = EngineLoop(shadow_engine())
    params = SamplingParams(max_tokens=40)
    loop.execute([Submit(Request(0, PROMPT, params)), Submit(Request(1, PROMPT, params), drafts=True, probabilities=True)])
    reports = run(loop)
    assert tokens_of(reports, 0) == tokens_of(reports, 1)
    plain, drafted = ([news for report in reports for news in report.news if news.id == number] for number in (0, 1))
    assert not any(any(news.window) or news.probabilities for news in plain)
    assert any(any(news.window) for news in drafted) and all(len(news.probabilities) == len(news.tokens) for news in drafted)


class Counting:
    """A driver that records each plan."""

    def __init__(self, driver):
        self.driver, self.plans = driver, []

    def run(self, plan):
        self.plans.append(plan)
        return self.driver.run(plan)


def wasted_by(plans, aborted):
    """Count the rows of positions that an earlier plan had stored, and all rows of an aborted request."""
    stored, wasted = set(), 0
    for span in (span for plan in plans for span in plan.spans):
        start = span.rows.start + span.rows.query_only
        final = {(span.who.id, position) for position in range(start, start + span.rows.final_rows)}
        wasted += len(span.rows.tokens) if span.who.id == aborted else len(final & stored)
        stored |= final
    return wasted


def test_work_counts_what_the_device_did():
    engine = shadow_engine(num_pages=17)
    driver = Counting(engine.driver)
    loop = EngineLoop(replace(engine, driver=driver))
    loop.execute([Submit(Request(number, (*PROMPT, 30 + number), SamplingParams(max_tokens=60))) for number in range(6)])
    reports = [loop.step() for _ in range(4)]
    loop.execute([Cancel(0)])
    reports += run(loop)
    rows = sum(len(span.rows.tokens) for plan in driver.plans for span in plan.spans)

    def work(field):
        return sum(getattr(report.work, field) for report in reports)

    assert work("rows") == rows and work("sampling_forwards") + work("storing_forwards") == len(driver.plans)
    assert work("prompt_tokens") == 6 * 21
    assert work("cached_tokens") > 0, "equal prefixes are shared"
    assert work("preemptions") > 0, "17 pages are not enough for all of them"
    assert 0 < work("wasted") == wasted_by(driver.plans, 0) < rows
    assert reports[-1].load[:2] == (0, 0)


def test_a_driver_that_fails_for_good_ends_the_engine():
    engine = shadow_engine()
    engine.driver.failures = [RuntimeError("broken")] * 5
    loop = EngineLoop(engine)
    loop.execute([Submit(Request(number, PROMPT, SamplingParams(max_tokens=8))) for number in range(40)])
    with pytest.raises(RuntimeError, match="broken"):
        run(loop)


def test_engine_ends_when_the_pipe_closes_or_when_asked():
    for polite in (True, False):
        ours, thread = started(shadow_engine())
        assert isinstance(ours.recv(), Heartbeat)
        info = ours.recv()
        assert isinstance(info, Facts) and info.model == "shadow" and info.folder is None
        ours.send((Submit(Request(0, PROMPT, SamplingParams(max_tokens=100))),))
        assert any(isinstance(ours.recv(), StepReport) for _ in range(5))
        if polite:
            ours.send(None)
        ours.close()
        thread.join(5)
        assert not thread.is_alive()


def test_only_embedded_models_have_a_description():
    facts = known_facts(shadow_engine())
    described = [description_of(facts._replace(folder=folder)) for folder in (None, Path("model"), tiny.path("tiny-bd"))]
    assert described[:2] == [None, None] and described[2]


def test_a_policy_counts_the_requests_that_come_together():
    policy = policy_of([{"max_requests": 2, "accept_threshold": 0.9}, {"accept_threshold": 0.1}])
    loop = EngineLoop(replace(shadow_engine(), buffer_policy=policy))
    params = SamplingParams(max_tokens=40)
    loop.execute([Submit(Request(0, PROMPT, params)), Submit(Request(1, PROMPT, params))])
    loop.execute([Submit(Request(2, PROMPT, params))])
    waiting = loop._decode.state.waiting
    assert [dict(sequence.request.params.strategy_options)["accept_threshold"] for sequence in waiting] == [0.9, 0.9, 0.1]


class NotedEdges(PlainEdges):
    """Edges that note which threads build them, and which find the states from which an answer can end in time."""

    noted, ends = Counter(), set()

    def __init__(self, automaton, gap):
        self.noted["bound", get_ident()] += 1
        super().__init__(automaton, gap)

    def before(self, states, letter):
        if letter == ANY and states in self.ends:
            self.noted["ends", get_ident()] += 1
        return super().before(states, letter)


class NotedBits(tables._MaskBits):
    """The ids of each class, which note the thread that sorts them."""

    def __init__(self, constraint):
        NotedEdges.noted["sorted", get_ident()] += 1
        super().__init__(constraint)


def test_forward_passes_do_not_wait_for_the_constraints_of_new_requests(monkeypatch):
    monkeypatch.setattr(tables, "_MaskBits", NotedBits)
    engine = shadow_engine()
    config, strategy = engine.first.config, engine.first.strategy
    ours, thread = started(engine)
    for number, pattern in enumerate(["[0-9]{2,40}", "[ab]{3,30}c?", "(one|two)*"]):
        request = constrained(Request(number, PROMPT, SamplingParams(max_tokens=40, regex=pattern)), config.spec)
        added, _ = checked(config, strategy, replace(request, automaton=replace(request.automaton, edges_of=NotedEdges)))
        NotedEdges.ends = {states.bitmap for states in added.constraint.ends}
        command = Submit(added)
        del added.constraint.__dict__["constraint"], added.constraint.__dict__["ends"]
        bound.cache_clear()
        NotedEdges.noted.clear()
        ours.send((command,))
        while not (isinstance(report := ours.recv(), StepReport) and any(news.finish_info for news in report.news)):
            pass
        assert {kind for kind, _ in NotedEdges.noted} == {"bound", "ends", "sorted"}
        assert all(ident != thread.ident for _, ident in NotedEdges.noted)
    ours.send(None)
    thread.join(5)
    assert not thread.is_alive()
