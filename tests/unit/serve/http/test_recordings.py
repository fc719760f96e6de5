"""Steps over HTTP: a chunk for each forward pass, recordings, forks, access and retention."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Signal, current_thread
from typing import Any
from weakref import WeakSet

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk

from dlstep import SamplingParams, Trace
from dlstep.serve.http import recordings
from dlstep.views.frames import recording

from ....helpers.serving import DeafHost, Paced, questions, served, shadow_engine, tiny_llm
from .conftest import error_of
from .test_answers import events, whole

TOKENS = 48
STEPS = {"stream": "steps"}
Event = dict[str, Any]


@pytest.fixture(scope="module")
def shadow(template):
    """A server without a network that keeps four answers."""
    with served(shadow_engine(), chat_template=str(template), kept_requests=4) as server:
        yield server


def frames_of(stream, index=0):
    """The frames of an answer."""
    return [event["dlstep"] for event in stream if event["dlstep"]["index"] == index]


def texts_of(stream):
    return "".join(choice["text"] for event in stream for choice in event["choices"])


def without_times(frames):
    return [{name: value for name, value in frame.items() if name not in ("seconds", "head")} for frame in frames]


def kept(http, request_id, **query):
    """The runs of a recording."""
    response = http.get(f"/v1/requests/{request_id}/steps", params=query)
    assert response.status_code == 200, response.text
    assert response.json()["dlstep_recording"] == 1
    return response.json()["runs"]


def answered(http, **body):
    """The id of a request whose steps are kept."""
    response = http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 8, "dlstep": STEPS, **body})
    assert response.status_code == 200, response.text
    return response.json()["id"]


def test_downloads_of_steps_delay_no_answer(monkeypatch):
    gate = Signal()
    monkeypatch.setattr(recordings, "recording", lambda *_: "{}" if gate.wait(60) else "")
    with served(shadow_engine()) as server, server.http() as http, ThreadPoolExecutor(40) as threads:
        path = f"/v1/requests/{answered(http)}/steps"
        downloads = [threads.submit(http.get, path) for _ in range(40)]
        try:
            assert [http.post("/v1/completions", json={"prompt": "a", "max_tokens": 4}).status_code for _ in range(3)] == [
                200
            ] * 3
            assert not any(each.done() for each in downloads)
        finally:
            gate.set()
        assert {each.result().status_code for each in downloads} == {200}


def test_a_stream_of_steps_is_the_trace_of_a_session(tiny):
    for prompt in questions(3):
        told = events(tiny, prompt=prompt, dlstep=STEPS)
        session = tiny_llm().session()
        session.submit(prompt, SamplingParams(max_tokens=TOKENS))
        session.run()
        (run,) = recording(Trace(session.trace.first, session.trace.events))["runs"]
        frames = frames_of(told)
        # Pages and their contents depend on earlier requests of the engine.
        for frame, expected in zip(frames, run["frames"], strict=True):
            if frame["plan"]:
                assert frame["plan"]["sampled"] == expected["plan"]["sampled"]
            left_out = {"plan", "seconds", "head"}
            assert {k: v for k, v in frame.items() if k not in left_out} == {
                k: v for k, v in expected.items() if k not in left_out
            }
        assert texts_of(told) == whole(tiny, prompt=prompt)["text"] == session.output(0).text
        seconds = [frame["seconds"] for frame in frames]
        assert seconds == sorted(seconds) and seconds[0] == 0.0
        head = frames[0]["head"]
        assert head["request"] == told[0]["id"] and head["options"]["rule"] == "threshold" and head["strategy"] == "multi_bd"
        assert {k: v for k, v in head.items() if k not in ("request", "model", "kind")} == {
            k: v for k, v in run["head"].items() if k not in ("request", "model", "kind")
        }
        assert all("head" not in frame for frame in frames[1:])


def test_every_answer_and_every_kind_of_request_has_its_steps(tiny):
    prompts = questions(2)
    told = events(tiny, prompt=prompts, n=2, dlstep=STEPS, logprobs=0)
    with tiny.http() as http:
        runs = kept(http, told[0]["id"])
        for index, run in enumerate(runs):
            frames = frames_of(told, index)
            assert frames == run["frames"] and run["ended"] and run["index"] == index
            assert run["text"] == whole(tiny, prompt=prompts[index // 2])["text"]
            logged = [choice["logprobs"]["tokens"] for event in told for choice in event["choices"] if choice["index"] == index]
            assert [len(each) for each in logged] == [len(frame["tokens"]) for frame in frames if frame["tokens"]]
        assert len(runs) == 4
        messages = [{"role": "user", "content": prompts[0]}]
        chat = events(tiny, "/v1/chat/completions", messages=messages, dlstep=STEPS)
        for event in chat:
            ChatCompletionChunk.model_validate(event)
        frames = [event["dlstep"] for event in chat if "dlstep" in event]
        assert frames[0]["head"]["kind"] == "chat" and [frame["seq"] for frame in frames] == [*range(len(frames))]
        quiet = http.post("/v1/completions", json={"prompt": prompts[0], "max_tokens": TOKENS, "dlstep": STEPS})
        Completion.model_validate(quiet.json())
        (run,) = kept(http, quiet.json()["id"])
        assert without_times(run["frames"])[1:] != [] and run["text"] == quiet.json()["choices"][0]["text"]
        for after in (*range(-1, len(run["frames"])), 1 << 50):
            later = kept(http, quiet.json()["id"], after=after)
            assert later == [{**run, "frames": [frame for frame in run["frames"] if frame["seq"] > after]}]


def test_a_fork_unchanged_is_the_original_and_changed_it_says_so(tiny):
    prompt = questions(1)[0]
    told = events(tiny, prompt=prompt, dlstep=STEPS)
    origin, frames = told[0]["id"], frames_of(told)
    for seq in range(frames[-1]["seq"]):
        again = forked(tiny, origin, seq=seq)
        after = frames_of(again)
        assert after[0]["head"]["forked_from"] == {"request": origin, "index": 0, "seq": seq}
        assert after[0]["seq"] == seq and after[0]["cells"] == frames[seq]["cells"]
        assert after[0]["tokens"] == [token for frame in frames[: seq + 1] for token in frame["tokens"]]
        alike = ("seq", "step", "nfe", "settled", "tokens", "cells")
        rest = [{name: frame[name] for name in alike} for frame in after[1:]]
        assert rest == [{name: frame[name] for name in alike} for frame in frames[seq + 1 :]]
        assert texts_of(again) == texts_of(told)
    other = forked(tiny, origin, seq=1, dlstep={"accept_threshold": 0.2})
    head = frames_of(other)[0]["head"]
    assert head["options"]["accept_threshold"] == 0.2 and head["forked_from"]["seq"] == 1
    session = tiny_llm().session()
    session.submit(prompt, SamplingParams(max_tokens=TOKENS))
    session.step()
    branch = session.fork(accept_threshold=0.2)
    branch.run()
    assert texts_of(other) == branch.output(0).text != texts_of(told)
    with tiny.http() as http:
        below = http.post(f"/v1/requests/{other[0]['id']}/fork", json={"seq": 0})
        assert below.status_code == 400 and "must be from" in below.json()["error"]["message"]
        at_end = http.post(f"/v1/requests/{origin}/fork", json={"seq": frames[-1]["seq"]})
        assert at_end.status_code == 400 and "before its end" in at_end.json()["error"]["message"]
    deeper = forked(tiny, other[0]["id"], seq=2, dlstep={"accept_threshold": 0.9})
    assert frames_of(deeper)[0]["head"]["forked_from"]["request"] == other[0]["id"]
    assert texts_of(deeper)


def forked(server, origin, **body):
    """The events of a fork."""
    path = f"/v1/requests/{origin}/fork"
    with server.http() as http, http.stream("POST", path, json={"stream": True, **body}) as response:
        assert response.status_code == 200, response.read()
        lines = [line for line in response.iter_lines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_only_the_newest_are_kept_and_a_sentence_says_so(http):
    first, *others = [answered(http) for _ in range(5)]
    for path, method in (("steps", "GET"), ("fork", "POST")):
        for unknown in (first, "cmpl-0"):
            response = http.request(method, f"/v1/requests/{unknown}/{path}", json={"seq": 0} if method == "POST" else None)
            error = response.json()["error"]
            assert response.status_code == 404 and error["code"] == "request_not_found"
            assert "the newest 4 answers" in error["message"]
    rows = http.get("/v1/requests").json()["data"]
    assert {row["id"] for row in rows if row["steps"]} == {*others}
    many = http.post("/v1/completions", json={"prompt": "x", "n": 5, "max_tokens": 4, "dlstep": STEPS}).json()["id"]
    assert http.get(f"/v1/requests/{many}/steps").status_code == 404, "five answers are more than are kept"
    assert all(len(kept(http, other)) == 1 for other in others), "and drop nobody else's"


def test_steps_are_rendered_beside_the_event_loop_and_only_those_asked_for(monkeypatch):
    rendered, encoded_frame = [], recordings.encoded_frame
    alive = WeakSet["Rendered"]()

    class Rendered(dict[str, Any]):
        """A frame that can be watched."""

        __hash__ = object.__hash__

    def noted(*given):
        rendered.append(current_thread().name)
        assert not alive, "frames pile up, and garbage collection traverses all of them"
        alive.add(frame := Rendered(encoded_frame(*given)))
        return frame

    monkeypatch.setattr(recordings, "encoded_frame", noted)
    with served(shadow_engine()) as server, server.http() as http:
        request_id = answered(http, max_tokens=100, ignore_eos=True)
        numbers = [frame["seq"] for frame in kept(http, request_id)[0]["frames"]]
        assert len(rendered) == len(numbers) > 10
        for after, count in ((numbers[-3], 2), (numbers[-1], 0), (1 << 50, 0)):
            before = len(rendered)
            kept(http, request_id, after=after)
            assert len(rendered) == before + count
    assert "http" not in rendered


def test_other_keys_see_nothing():
    with served(shadow_engine(), keys=("one", "two")) as server, server.http() as http:
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        body = {"prompt": "abc", "max_tokens": 8, "dlstep": STEPS}
        request_id = http.post("/v1/completions", json=body, headers=one).json()["id"]
        path = f"/v1/requests/{request_id}"
        assert http.get(f"{path}/steps", headers=one).status_code == 200
        assert http.get("/v1/requests", headers=two).json()["data"] == []
        for unseen, unknown in (
            (http.get(f"{path}/steps", headers=two), http.get("/v1/requests/cmpl-0/steps", headers=two)),
            (http.post(f"{path}/fork", json={"seq": 0}, headers=two),
             http.post("/v1/requests/cmpl-0/fork", json={"seq": 0}, headers=two)),
        ):  # fmt: skip
            assert unseen.status_code == 404 and unseen.json() == unknown.json()
        assert http.get("/v1/options").status_code == http.get("/v1/requests").status_code == 401


def test_requests_under_way_are_listed_shown_and_forked():
    engine = shadow_engine()
    assert isinstance(engine.driver, Paced)
    with served(engine) as server, server.http() as http, ThreadPoolExecutor(2) as threads:
        engine.driver.gate.clear()
        plain = threads.submit(http.post, "/v1/completions", json={"prompt": "abc", "max_tokens": 8})
        waits = threads.submit(answered, http)
        server.until(lambda: len(http.get("/v1/requests").json()["data"]) == 2)
        rows = http.get("/v1/requests").json()["data"]
        assert {(row["status"], row["steps"]) for row in rows} == {("running", True), ("running", False)}
        request_id = next(row["id"] for row in rows if row["steps"])
        (run,) = kept(http, request_id)
        assert not run["ended"] and [frame["seq"] for frame in run["frames"]] == [0]
        far = http.post(f"/v1/requests/{request_id}/fork", json={"seq": 3})
        assert far.status_code == 400 and "must be from 0 to" in far.json()["error"]["message"]
        fork = threads.submit(forked, server, request_id, seq=0)
        engine.driver.gate.set()
        plain.result()
        assert waits.result() == request_id
        assert frames_of(fork.result())[1:] == [] or texts_of(fork.result()) == kept(http, request_id)[0]["text"]


def test_what_the_engine_kept_dies_with_it():
    engine = shadow_engine(max_num_reqs=1)
    host = DeafHost(engine)
    with served(engine, host=host) as server, server.http() as http, ThreadPoolExecutor(20) as threads:
        begun = [threads.submit(http.post, "/v1/completions", json={"prompt": "a", "dlstep": STEPS}) for _ in range(9)]
        server.until(lambda: len(http.get("/v1/requests").json()["data"]) == 9)
        waiting = threads.submit(answered, http)
        server.until(lambda: len(http.get("/v1/requests").json()["data"]) == 10)
        old = http.get("/v1/requests").json()["data"][-1]["id"]
        fork = threads.submit(http.post, f"/v1/requests/{old}/fork", json={"seq": 0})
        server.until(lambda: server.router.live == 11)
        host.die()
        assert {each.result().status_code for each in begun} == {503}
        assert fork.result().json()["error"]["message"] == "the engine died, and the step to fork from is lost"
        response = http.get(f"/v1/requests/{old}/steps")
        assert response.status_code == 404 and "until their engine ends" in response.text
        assert kept(http, waiting.result())[0]["ended"], "the next engine had what waited"
        assert texts_of(forked(server, waiting.result(), seq=0)) == kept(http, waiting.result())[0]["text"]


def test_kept_steps_are_bounded_in_positions_and_dropped_in_the_engine_too():
    with served(shadow_engine(), kept_positions=200) as server, server.http() as http:
        ids = [answered(http, max_tokens=16, ignore_eos=True) for _ in range(12)]
        states = [http.get(f"/v1/requests/{each}/steps").status_code for each in ids]
        assert states == sorted(states, reverse=True) and {*states} == {200, 404}, "the oldest ones are gone"
        ids.append(answered(http, prompt="x", max_tokens=100, ignore_eos=True))
        assert answered(http, max_tokens=4), "the large one goes when the next one comes"
        assert {http.get(f"/v1/requests/{each}/steps").status_code for each in ids} == {404}
        assert len(server.router.recording_store._requests) == 1
    with served(shadow_engine(), kept_requests=0) as server, server.http() as http:
        request_id = answered(http)
        assert http.get(f"/v1/requests/{request_id}/steps").status_code == 404


@pytest.mark.parametrize(
    "param, body",
    [
        ("seq", {}), ("seq", {"seq": -1}), ("seq", {"seq": 99}), ("seq", {"seq": "1"}), ("index", {"seq": 0, "index": 1}),
        ("dlstep.accept_threshold", {"seq": 0, "dlstep": {"accept_threshold": 2}}),
        ("dlstep.block_size", {"seq": 0, "dlstep": {"block_size": 4}}), ("dlstep.nope", {"seq": 0, "dlstep": {"nope": 1}}),
        ("dlstep.rule", {"seq": 0, "dlstep": {"rule": "./evil.py"}}), ("dlstep.rule", {"seq": 0, "dlstep": {"rule": "credit"}}),
        ("dlstep.max_nfe", {"seq": 0, "dlstep": {"max_nfe": 4}}), ("dlstep.stream", {"seq": 0, "dlstep": {"stream": "drafts"}}),
        ("seed", {"seq": 0, "seed": 1.5}), ("seed", {"seq": 0, "seed": 1 << 64}),
        ("temperature", {"seq": 0, "temperature": -1}),
        ("temperature", {"seq": 0, "temperature": 1e-31}), ("prompt", {"seq": 0, "prompt": "x"}),
    ],
)  # fmt: skip
def test_a_fork_that_cannot_be_is_refused_by_the_name_of_its_field(http, param, body):
    request_id = answered(http)
    response = http.post(f"/v1/requests/{request_id}/fork", json=body)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert error["param"] == param and "request 0" not in error["message"], error
