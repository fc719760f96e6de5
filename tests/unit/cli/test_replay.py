"""`dlstep replay`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dlstep import Request, Samples, SamplingParams, Trace
from dlstep.cli import main
from dlstep.core import Add, Fail, Prune, Rebuild

from ...helpers.shadow_llm import make_llm
from ...helpers.spans import changed as with_fields
from .failing import Captured, failure

QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    """A saved decode of two requests, one of them aborted."""
    session = make_llm().session()
    session.submit(QUESTION, SamplingParams(max_tokens=20, ignore_eos=True))
    other = session.submit("other")
    session.step()
    session.abort(other)
    session.run()
    session.trace.save(tmp_path / "decode.jsonl")
    return tmp_path / "decode.jsonl"


def test_a_trace_is_replayed_without_a_model(trace_path: Path, capsys: Captured) -> None:
    assert main(["replay", str(trace_path)]) == 0
    assert "of 2 requests, 0 of them unfinished: every plan is as recorded" in capsys.readouterr().out
    assert main(["replay", str(trace_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["add"], found["abort"], found["rebuild"], found["divergence"]) == (2, 1, 0, None)


def test_a_trace_that_diverges_exits_with_one(trace_path: Path, capsys: Captured) -> None:
    trace = Trace.load(trace_path)
    Trace(trace.first, (trace.events[0], *trace.events[2:])).save(trace_path)  # the second request never came
    assert main(["replay", str(trace_path)]) == 1
    assert capsys.readouterr().out.startswith("diverged: event 1, step 0: ")
    trace_path.write_text("{}\n")
    assert "not a line of a trace" in failure(["replay", str(trace_path)], capsys)


def diverged(path: Path, trace: Trace, capsys: Captured) -> str:
    """The line that a replay of a trace prints, which parts from what was recorded."""
    trace.save(path)
    assert main(["replay", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("diverged: event ") and out.count("\n") == 1 and len(out) < 400
    assert "line" not in out
    return out


def test_a_replay_says_in_words_where_it_parts(trace_path: Path, capsys: Captured) -> None:
    trace = Trace.load(trace_path)
    steps = [number for number, event in enumerate(trace.events) if isinstance(event, Samples)]
    first, second = steps[1], steps[2]
    samples = trace.events[first]
    assert isinstance(samples, Samples)
    tokens = samples.rows[0].tokens
    other = replace(samples.rows[0], tokens=(*tokens[:-1], (tokens[-1] + 1) % 20 + 20))
    tampered = (*trace.events[:first], Samples(samples.plan, (other,)), *trace.events[first + 1 :])
    out = diverged(trace_path, Trace(trace.first, tampered), capsys)
    assert f"event {second}, step 2: the samples of event {first}, or its plan, are not those" in out
    lost = Trace(trace.first, (*trace.events[:first], Rebuild(), *trace.events[first:]))
    assert "the trace resets the device, the recorded decode does not" in diverged(trace_path, lost, capsys)
    later = Trace(trace.first, (*trace.events[: steps[0]], *trace.events[first:]))
    assert f"event {steps[0]}, step 0: " in diverged(trace_path, later, capsys)
    began = Trace(replace(trace.first, cache_digest=5), trace.events)
    assert "the recorded decode resets the device" in diverged(trace_path, began, capsys)
    plan = replace(samples.plan, spans=(with_fields(samples.plan.spans[0], seed=3),))
    seeded = (*trace.events[:first], Samples(plan, samples.rows), *trace.events[first + 1 :])
    found = diverged(trace_path, Trace(trace.first, seeded), capsys)
    assert f"event {first}, step 1: span 0 of request 0: seed is " in found and "now, 3 was recorded" in found
    changed = with_fields(samples.plan.spans[0], draws=(*samples.plan.spans[0].wanted.draws[:-1], 77))
    drawn = (*trace.events[:first], Samples(replace(samples.plan, spans=(changed,)), samples.rows))
    place = len(changed.wanted.draws) - 1
    assert f"draws entry {place} is " in diverged(trace_path, Trace(trace.first, drawn), capsys)


def test_every_event_of_a_trace_is_counted(trace_path: Path, capsys: Captured) -> None:
    trace = Trace.load(trace_path).extended(Prune())
    state = trace.state
    for event in (Add(Request(7, (5,))), Fail(7, "gone")):
        trace = trace.extended(event)
    trace.save(trace_path)
    assert state.done and main(["replay", str(trace_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: found[name] for name in ("add", "adopt", "abort", "fail", "rebuild", "prune")} == {
        "add": 3, "adopt": 0, "abort": 1, "fail": 1, "rebuild": 0, "prune": 1,
    }  # fmt: skip
