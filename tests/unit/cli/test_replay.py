"""`dlstep replay`."""

import json
import re
from dataclasses import fields

import pytest

from dlstep import Request, SamplingParams, Trace
from dlstep.cli.replay import OwnParts
from dlstep.core import Add, Fail, Prune

from ...helpers.shadow_llm import make_llm


@pytest.fixture
def trace_path(tmp_path):
    """A saved decode of two requests, one of them aborted."""
    session = make_llm().session()
    session.submit("Max has 53 shells.", SamplingParams(max_tokens=20, ignore_eos=True))
    other = session.submit("other")
    session.step()
    session.abort(other)
    session.run()
    session.trace.save(tmp_path / "decode.jsonl")
    return tmp_path / "decode.jsonl"


def test_a_trace_is_replayed_without_a_model_and_its_events_are_counted(trace_path, printed):
    assert "of 2 requests, 0 of them unfinished: every plan is as recorded" in printed(f"replay {trace_path}")
    trace = Trace.load(trace_path)
    for event in (Prune(), Add(Request(7, (5,))), Fail(7, "gone")):
        trace = trace.extended(event)
    trace.save(trace_path)
    counts = {"add": 3, "adopt": 0, "abort": 1, "fail": 1, "rebuild": 0, "prune": 1, "divergence": None}
    assert json.loads(printed(f"replay {trace_path} --json")).items() >= counts.items()


@pytest.mark.parametrize("option", [field.name for field in fields(OwnParts)])
def test_the_files_of_own_parts_are_imported(option, trace_path, failure, tmp_path):
    (tmp_path / "own.py").write_text("raise OSError('imported')\n")
    assert re.search("own[.]py.*imported", failure(f"replay {trace_path} --{option} {tmp_path / 'own.py'}"))


def test_a_trace_that_diverges_exits_with_one(trace_path, printed, failure):
    trace = Trace.load(trace_path)
    Trace(trace.first, (trace.events[0], *trace.events[2:])).save(trace_path)  # the second request never came, only its pages
    assert printed(f"replay {trace_path}", code=1).startswith("diverged: event 2, step 0: ")
    trace_path.write_text("{}\n")
    assert "not a line of a trace" in failure(f"replay {trace_path}")
