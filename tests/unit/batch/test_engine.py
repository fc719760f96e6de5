"""The answers of a batch are those of the server, in its words, and those of `LLM.generate`."""

import json
from dataclasses import replace

import pytest

from dlstep import LLM
from dlstep.batch.engine import BatchEngine, EngineFailed, EngineSource, about
from dlstep.core import DlstepError, SamplingParams
from dlstep.engine.config import EngineConfig
from dlstep.serve.http import translate

from ...helpers.compiler import suspend_compiler
from ...helpers.serving import CHAT, TEMPLATE, served, shadow_engine
from .batches import SEATS, URL, engine, lines_of, request, run

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
SCHEMA = {"type": "object", "properties": {"enough": {"type": "boolean"}}, "required": ["enough"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def server():
    """The same model, served."""
    with served(LLM("tiny-bd", max_num_reqs=SEATS).engine, template=TEMPLATE) as running:
        yield running


def answered(rows, folder):
    """The answers of a batch with the template of the server."""
    return run(lines_of(rows), folder / "out.jsonl", BatchEngine(engine(), template=TEMPLATE))


def without_measures(body):
    """The part of a body of the server's that does not depend on other requests."""
    del body["id"], body["created"], body["usage"]["prompt_tokens_details"]
    for choice in body["choices"]:
        del choice["dlstep"]["nfe"], choice["dlstep"]["tokens_per_forward"]
    return body


RIGHT = [
    (URL, {"prompt": STORY, "max_tokens": 40}),
    (URL, {"prompt": [STORY, "Leo has 3 hats."], "max_tokens": 12, "n": 2, "temperature": 0.8, "echo": True}),
    (URL, {"prompt": [5, 6, 7], "max_tokens": 12, "seed": 7, "temperature": 1.0, "stop": ["."]}),
    (URL, {"prompt": STORY, "max_tokens": 24, "dlstep": {"accept_threshold": 0.3, "max_nfe": 3, "pinned": {"2": "9"}}}),
    (URL, {"prompt": STORY, "model": "tiny-bd", "max_tokens": 6, "ignore_eos": True}),
    (CHAT, {"messages": [{"role": "user", "content": STORY}], "max_completion_tokens": 40}),
    (URL, {"prompt": STORY, "max_tokens": 40, "structured_outputs": {"json": SCHEMA}}),
    (CHAT, {"messages": [{"role": "user", "content": STORY}], "max_tokens": 40, "response_format": FORMAT}),
]  # fmt: skip


def test_bodies_are_those_of_the_server(server, tmp_path):
    rows = answered([request(f"r{number}", body, url) for number, (url, body) in enumerate(RIGHT)], tmp_path)
    for row, (url, body) in zip(rows, RIGHT, strict=True):
        theirs, ours = without_measures(server.post(url, **body)), row["response"]["body"]
        key = row["id"].removeprefix("batch_req_")
        assert ours.pop("id") == ("chatcmpl-" if url == CHAT else "cmpl-") + key
        assert ours.pop("created") == int(key[:8], 16) // 2
        assert ours == theirs and row["response"]["status_code"] == 200 and row["error"] is None


def test_responses_are_those_of_the_server(server, tmp_path):
    url, right = "/v1/responses", {"input": STORY, "max_output_tokens": 40}
    wrong = right | {"input": []}
    good, bad = answered([request("a", right, url), request("b", wrong, url)], tmp_path)
    assert server.post(url, status=400, **wrong) == bad["response"]["body"]
    theirs, ours = server.post(url, **right), good["response"]["body"]
    assert ours["id"] == good["id"].replace("batch_req_", "resp_") and ours["created_at"] == int(ours["id"][5:13], 16) // 2
    assert ours["output"][0]["content"] == theirs["output"][0]["content"] and ours["status"] == theirs["status"]
    assert ours["usage"] == {name: value for name, value in theirs["usage"].items() if name != "input_tokens_details"}
    assert ours["dlstep"].keys() == {"finish_reason", "step"}


def test_probabilities_are_those_of_the_server(server, tmp_path):
    body = {"prompt": STORY, "max_tokens": 8, "logprobs": 1}
    (row,) = answered([request("a", body)], tmp_path)
    theirs = server.choice(**body)["logprobs"]
    ours = row["response"]["body"]["choices"][0]["logprobs"]
    assert ours["tokens"] == theirs["tokens"] and ours["token_logprobs"] == pytest.approx(theirs["token_logprobs"], abs=1e-4)


@pytest.mark.parametrize(
    "change, param, code",
    [
        ({"method": "GET"}, "method", "invalid_value"),
        ({"url": "/v1/embeddings"}, "url", "invalid_value"),
        ({"body": [1]}, "body", "invalid_type"),
        ({"more": 1}, "more", "unknown_field"),
        ({"body": {"prompt": "x", "stream": True}}, "stream", "unsupported"),
        ({"body": {"prompt": "x", "dlstep": {"stream": "steps"}}}, "dlstep.stream", "unsupported"),
        ({"body": {"prompt": "x", "dlstep": {"stream": "drafts"}}}, "dlstep.stream", "unsupported"),
        ({"body": {"prompt": "x" * 10_000}}, "prompt", "context_length_exceeded"),
    ],
)
def test_what_a_batch_cannot_do_is_an_error_of_the_line(change, param, code, tmp_path):
    (row,) = answered([request("a", {"prompt": STORY}) | change], tmp_path)
    error = row["response"]["body"]["error"]
    assert (row["response"]["status_code"], error["param"], error["code"]) == (400, param, code)


GOOD = {"prompt": "x", "max_tokens": 4}


def test_an_unexpected_error_is_that_of_its_line(tmp_path, monkeypatch):
    params_of = translate.params_of

    def fails(facts, body):
        if body.seed == 7:
            raise RecursionError("unexpected")
        return params_of(facts, body)

    monkeypatch.setattr(translate, "params_of", fails)
    rows = [request("wrong", GOOD | {"seed": 7}), request("right", GOOD)]
    found = run(lines_of(rows), tmp_path / "out.jsonl", BatchEngine(shadow_engine()))
    assert [row["response"]["status_code"] for row in found] == [500, 200]
    assert found[0]["response"]["body"]["error"]["code"] == "internal_error"


def run_failing(failures, folder):
    """The answers of an engine whose first forward passes fail, and which takes one of two requests at a time."""
    shadow = shadow_engine(max_num_reqs=1)
    shadow.driver.failures = [RuntimeError("CUDA error")] * failures
    lines = lines_of([request("one", GOOD), request("other", GOOD | {"seed": 1})])
    return run(lines, folder / "out.jsonl", BatchEngine(shadow))


@pytest.mark.parametrize("failures, statuses", [(1, [200, 200]), (2, [500, 200])])
def test_a_forward_pass_that_fails_is_tried_again_and_then_ends_its_request(failures, statuses, tmp_path):
    assert [row["response"]["status_code"] for row in run_failing(failures, tmp_path)] == statuses


def test_a_third_failure_ends_the_batch(tmp_path):
    with pytest.raises(DlstepError, match="3 consecutive forward passes failed: CUDA error"):
        run_failing(3, tmp_path)


def test_a_compilation_that_was_killed_is_tried_again(tmp_path):
    suspend_compiler()
    rows = lines_of([request("one", GOOD | {"structured_outputs": {"regex": "[j-l]{4}"}})])
    (row,) = run(rows, tmp_path / "out.jsonl", BatchEngine(shadow_engine()))
    assert row["response"]["status_code"] == 200


def test_an_engine_tells_its_facts_or_why_there_is_none(tmp_path):
    config = EngineConfig("tiny-bd", max_num_reqs=SEATS)
    assert about(EngineSource(config, None, None, str(tmp_path))) == (BatchEngine(engine()).facts, SEATS)
    failed = about(EngineSource(replace(config, model=str(tmp_path)), None, None, str(tmp_path)))
    assert isinstance(failed, EngineFailed) and "config.json" in str(failed)


def test_step_maps_are_those_of_generate(server, tmp_path):
    """Over HTTP, in both formats and streamed or not, in batch files and of `generate`: one text."""
    (output,) = LLM("tiny-bd").generate(STORY, SamplingParams(max_tokens=40, step_map=True), progress=False)
    expected, asked = json.loads(json.dumps(output.step_map.to_json())), {"dlstep": {"step_map": True}}
    body = {"prompt": STORY, "max_tokens": 40, **asked}
    (row,) = answered([request("a", body)], tmp_path)
    for choice in (row["response"]["body"]["choices"][0], server.choice(**body)):
        assert choice["dlstep"]["step_map"] == expected
    for kind in ("settled", "drafts", "steps"):
        told = server.events(**body | {"dlstep": {"step_map": True, "stream": kind}})
        assert [each["dlstep"]["step_map"] for each in told if "step_map" in each.get("dlstep", ())] == [expected]
    (chat,) = server.post(CHAT, messages=[{"role": "user", "content": STORY}], max_tokens=40, **asked)["choices"]
    response = server.post("/v1/responses", input=STORY, max_output_tokens=40, **asked)
    assert response["dlstep"]["step_map"] == chat["dlstep"]["step_map"]
    assert "step_map" not in server.choice(prompt=STORY)["dlstep"]
