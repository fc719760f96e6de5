"""The engine of an actor answers concurrent calls together, and ends its process if a forward pass hangs."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from dlstep.batch.engine import BatchEngine, EngineActor, EngineSource
from dlstep.batch.lines import content_key
from dlstep.engine.config import EngineConfig

from ...helpers.serving import shadow_engine
from .batches import engine, lines_of, run, stories

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]


def actor_of(batch, seconds=600.0):
    """An actor with this engine."""
    with patch.object(EngineSource, "load", lambda *_: batch):
        return EngineActor(seconds, EngineSource(EngineConfig(), None, None, ""))


def rows_of(contents):
    """A block of requests, as Ray Data hands it over."""
    return {"place": [*contents], "content": [json.dumps(content) for content in contents.values()]}


def test_concurrent_calls_have_the_answers_of_a_batch(tmp_path):
    lines = lines_of(stories(24))
    answering, facts = actor_of(BatchEngine(engine())), BatchEngine(engine()).facts
    blocks = [range(start, start + 3) for start in range(0, 24, 3)]
    with ThreadPoolExecutor(len(blocks)) as calls:
        replies = list(calls.map(answering, [rows_of({place: lines[place].content for place in block}) for block in blocks]))
    assert [place for reply in replies for place in reply["place"]] == list(range(24))
    found = [json.loads(answer) for reply in replies for answer in reply["answer"]]
    assert [key for key, *_ in found] == [content_key(facts, line.content) for line in lines]
    bodies = [row["response"]["body"] for row in run(lines, tmp_path / "out.jsonl")]
    assert [body for _, _, body, _ in found] == bodies


def test_a_line_that_is_no_request_is_an_error_of_its_own():
    batch = BatchEngine(shadow_engine())
    reply = actor_of(batch)(rows_of({3: {"method": "GET"}}))
    _, status, body, _ = json.loads(reply["answer"][0])
    assert reply["place"] == [3] and status == 400 and body["error"]["param"] == "method"


def answer_with(step):
    """Send a request to an engine with this step."""
    with patch.object(BatchEngine, "step", step):
        actor_of(BatchEngine(shadow_engine()), 1.0)(rows_of({0: lines_of(stories(1))[0].content}))


def hanging(batch):
    """Never return."""
    time.sleep(600)
    return []


def failing(batch):
    """Fail like a kernel."""
    raise RuntimeError("CUDA error")


@pytest.mark.parametrize("step, words", [(hanging, "Timeout (0:00:01)!"), (failing, "RuntimeError: CUDA error")])
def test_the_process_ends_if_a_forward_pass_hangs_or_fails(step, words):
    code = f"from {__name__} import answer_with, {step.__name__}; answer_with({step.__name__})"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and words in done.stderr and "_decode" in done.stderr
