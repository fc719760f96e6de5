"""`dlstep replay`."""

import json

import pytest

from dlstep import Request, SamplingParams, Trace
from dlstep.cli import main
from dlstep.core import Add, Fail, Prune

from ...helpers.shadow_llm import make_llm
from .failing import failure

QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"


@pytest.fixture
def trace_path(tmp_path):
    """A saved decode of two requests, one of them aborted."""
    session = make_llm().session()
    session.submit(QUESTION, SamplingParams(max_tokens=20, ignore_eos=True))
    other = session.submit("other")
    session.step()
    session.abort(other)
    session.run()
    session.trace.save(tmp_path / "decode.jsonl")
    return tmp_path / "decode.jsonl"


def test_a_trace_is_replayed_without_a_model(trace_path, capsys):
    assert main(["replay", str(trace_path)]) == 0
    assert "of 2 requests, 0 of them unfinished: every plan is as recorded" in capsys.readouterr().out
    assert main(["replay", str(trace_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["add"], found["abort"], found["rebuild"], found["divergence"]) == (2, 1, 0, None)


def test_a_trace_that_diverges_exits_with_one(trace_path, capsys):
    trace = Trace.load(trace_path)
    Trace(trace.first, (trace.events[0], *trace.events[2:])).save(trace_path)  # the second request never came, only its pages
    assert main(["replay", str(trace_path)]) == 1
    assert capsys.readouterr().out.startswith("diverged: event 2, step 0: ")
    trace_path.write_text("{}\n")
    assert "not a line of a trace" in failure(["replay", str(trace_path)], capsys)


def test_every_event_of_a_trace_is_counted(trace_path, capsys):
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
