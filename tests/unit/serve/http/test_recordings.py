"""Steps over HTTP: a chunk for each forward pass, recordings, forks, access and retention."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event as Signal, current_thread
from weakref import WeakSet

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk

from dlstep import Trace
from dlstep.serve.http import recordings
from dlstep.views.frames import recording

from ....helpers.serving import CHAT, COMPLETIONS, DeafHost, bearer, questions, served, shadow_engine, tiny_llm
from .conftest import GOOD, cases, error_of, refused

STEPS = {"dlstep": {"stream": "steps"}}


@pytest.fixture(scope="module")
def shadow():
    """A server without a network that keeps four answers."""
    with served(kept_requests=4) as server:
        yield server


def frames_of(stream, index=0):
    """The frames of an answer."""
    return [event["dlstep"] for event in stream if event["dlstep"]["index"] == index]


def texts_of(stream):
    return "".join(choice["text"] for event in stream for choice in event["choices"])


def without(values, *names):
    """The fields of a frame or a head but for these."""
    return {name: value for name, value in values.items() if name not in names}


def steps_path(request_id):
    return f"/v1/requests/{request_id}/steps"


def fork_path(request_id):
    return f"/v1/requests/{request_id}/fork"


def kept(server, request_id, **query):
    """The runs of a recording."""
    with server.http() as http:
        response = http.get(steps_path(request_id), params=query)
    assert response.status_code == 200, response.text
    assert response.json()["dlstep_recording"] == 1
    return response.json()["runs"]


def answered(server, **body):
    """The id of a request whose steps are kept."""
    return server.post(COMPLETIONS, **{"prompt": "abc", "max_tokens": 8, **STEPS, **body})["id"]


def forked(server, origin, **body):
    """The events of a fork."""
    return server.events(fork_path(origin), **body)


def test_downloads_of_steps_delay_no_answer(monkeypatch):
    gate = Signal()
    monkeypatch.setattr(recordings, "recording", lambda *_: "{}" if gate.wait(60) else "")
    with served() as server, server.http() as http, ThreadPoolExecutor(40) as threads:
        path = steps_path(answered(server))
        downloads = [threads.submit(http.get, path) for _ in range(40)]
        try:
            for _ in range(3):
                server.choice(**GOOD)
            assert not any(each.done() for each in downloads)
        finally:
            gate.set()
        assert {each.result().status_code for each in downloads} == {200}


def test_a_stream_of_steps_is_the_trace_of_a_session(tiny):
    for prompt in questions(3):
        told = tiny.events(prompt=prompt, **STEPS)
        session = tiny_llm().session()
        session.submit(prompt)
        session.run()
        (run,) = recording(Trace(session.trace.first, session.trace.events))["runs"]
        frames = frames_of(told)
        # Pages and their contents depend on earlier requests of the engine.
        for frame, expected in zip(frames, run["frames"], strict=True):
            if frame["plan"]:
                assert frame["plan"]["sampled"] == expected["plan"]["sampled"]
            assert without(frame, "plan", "seconds", "head") == without(expected, "plan", "seconds", "head")
        assert texts_of(told) == tiny.choice(prompt=prompt)["text"] == session.output(0).text
        seconds = [frame["seconds"] for frame in frames]
        assert seconds == sorted(seconds) and seconds[0] == 0.0
        head = frames[0]["head"]
        assert head["request"] == told[0]["id"] and head["options"]["rule"] == "threshold" and head["strategy"] == "multi_bd"
        assert without(head, "request", "model", "kind") == without(run["head"], "request", "model", "kind")
        assert all("head" not in frame for frame in frames[1:])


def test_every_answer_and_every_kind_of_request_has_its_steps(tiny):
    prompts = questions(2)
    told = tiny.events(prompt=prompts, n=2, logprobs=0, **STEPS)
    runs = kept(tiny, told[0]["id"])
    for index, run in enumerate(runs):
        frames = frames_of(told, index)
        assert frames == run["frames"] and run["ended"] and run["index"] == index
        assert run["text"] == tiny.choice(prompt=prompts[index // 2])["text"]
        logged = [choice["logprobs"]["tokens"] for event in told for choice in event["choices"] if choice["index"] == index]
        assert [len(each) for each in logged] == [len(frame["tokens"]) for frame in frames if frame["tokens"]]
    assert len(runs) == 4
    chat = tiny.events(CHAT, messages=[{"role": "user", "content": prompts[0]}], **STEPS)
    for event in chat:
        ChatCompletionChunk.model_validate(event)
    frames = [event["dlstep"] for event in chat if "dlstep" in event]
    assert frames[0]["head"]["kind"] == "chat" and [frame["seq"] for frame in frames] == [*range(len(frames))]
    quiet = tiny.post(COMPLETIONS, prompt=prompts[0], **STEPS)
    Completion.model_validate(quiet)
    (run,) = kept(tiny, quiet["id"])
    assert run["frames"][1:] and run["text"] == quiet["choices"][0]["text"]
    for after in (*range(-1, len(run["frames"])), 1 << 50):
        later = kept(tiny, quiet["id"], after=after)
        assert later == [{**run, "frames": [frame for frame in run["frames"] if frame["seq"] > after]}]


def test_a_fork_unchanged_is_the_original_and_changed_it_says_so(tiny):
    prompt = questions(1)[0]
    told = tiny.events(prompt=prompt, **STEPS)
    origin, frames = told[0]["id"], frames_of(told)
    for seq in range(frames[-1]["seq"]):
        again = forked(tiny, origin, seq=seq)
        first, *rest = frames_of(again)
        assert first["head"]["forked_from"] == {"request": origin, "index": 0, "seq": seq}
        assert first["seq"] == seq and first["cells"] == frames[seq]["cells"]
        assert first["tokens"] == [token for frame in frames[: seq + 1] for token in frame["tokens"]]
        differing = ("plan", "seconds", "rivals", "tokens_per_forward")
        assert [without(frame, *differing) for frame in rest] == [without(frame, *differing) for frame in frames[seq + 1 :]]
        assert texts_of(again) == texts_of(told)
    other = forked(tiny, origin, seq=1, dlstep={"accept_threshold": 0.2})
    head = frames_of(other)[0]["head"]
    assert head["options"]["accept_threshold"] == 0.2 and head["forked_from"]["seq"] == 1
    assert texts_of(other) != texts_of(told)
    for request_id, seq, reason in ((other[0]["id"], 0, "must be from"), (origin, frames[-1]["seq"], "before its end")):
        assert reason in tiny.post(fork_path(request_id), seq=seq, status=400)["error"]["message"]
    deeper = forked(tiny, other[0]["id"], seq=2, dlstep={"accept_threshold": 0.9})
    assert frames_of(deeper)[0]["head"]["forked_from"]["request"] == other[0]["id"]
    assert texts_of(deeper)


def test_only_the_newest_are_kept_and_a_sentence_says_so(shadow, http):
    first, *others = [answered(shadow) for _ in range(5)]
    for unknown in (first, "cmpl-0"):
        for response in (http.get(steps_path(unknown)), http.post(fork_path(unknown), json={"seq": 0})):
            error = error_of(response)
            assert error["code"] == "request_not_found" and "the newest 4 answers" in error["message"]
    assert {row["id"] for row in listed(http) if row["steps"]} == {*others}
    many = answered(shadow, n=5)
    assert http.get(steps_path(many)).status_code == 404, "five answers are more than are kept"
    assert all(len(kept(shadow, other)) == 1 for other in others), "and drop nobody else's"


def listed(http):
    """The requests that the server lists."""
    return http.get("/v1/requests").json()["data"]


def test_steps_are_rendered_beside_the_event_loop_and_only_those_asked_for(monkeypatch):
    rendered, encoded_frame = [], recordings.encoded_frame
    alive = WeakSet()

    class Rendered(dict):
        """A frame that can be watched."""

        __hash__ = object.__hash__

    def noted(*given):
        rendered.append(current_thread().name)
        assert not alive, "frames pile up, and garbage collection traverses all of them"
        alive.add(frame := Rendered(encoded_frame(*given)))
        return frame

    monkeypatch.setattr(recordings, "encoded_frame", noted)
    with served() as server:
        request_id = answered(server, max_tokens=100, ignore_eos=True)
        numbers = [frame["seq"] for frame in kept(server, request_id)[0]["frames"]]
        assert len(rendered) == len(numbers) > 10
        for after, count in ((numbers[-3], 2), (numbers[-1], 0), (1 << 50, 0)):
            before = len(rendered)
            kept(server, request_id, after=after)
            assert len(rendered) == before + count
    assert "http" not in rendered


def test_other_keys_see_nothing():
    with served(keys=("one", "two")) as server, server.http() as http:
        request_id = answered(server, key="one")
        assert http.get(steps_path(request_id), headers=bearer("one")).status_code == 200
        http.headers |= bearer("two")
        assert listed(http) == []
        seen = [(http.get(steps_path(each)), http.post(fork_path(each), json={"seq": 0})) for each in (request_id, "cmpl-0")]
        for unseen, unknown in zip(*seen, strict=True):
            assert unseen.status_code == 404 and unseen.json() == unknown.json()
        del http.headers["Authorization"]
        assert http.get("/v1/options").status_code == http.get("/v1/requests").status_code == 401


def test_requests_under_way_are_listed_shown_and_forked():
    engine = shadow_engine()
    with served(engine) as server, server.http() as http, ThreadPoolExecutor(2) as threads:
        engine.driver.gate.clear()
        plain = threads.submit(server.choice, **GOOD)
        waits = threads.submit(answered, server)
        server.until(lambda: len(listed(http)) == 2)
        rows = listed(http)
        assert {(row["status"], row["steps"]) for row in rows} == {("running", True), ("running", False)}
        request_id = next(row["id"] for row in rows if row["steps"])
        (run,) = kept(server, request_id)
        assert not run["ended"] and [frame["seq"] for frame in run["frames"]] == [0]
        assert "must be from 0 to" in server.post(fork_path(request_id), seq=3, status=400)["error"]["message"]
        fork = threads.submit(forked, server, request_id, seq=0)
        engine.driver.gate.set()
        plain.result()
        assert waits.result() == request_id
        assert frames_of(fork.result())[1:] == [] or texts_of(fork.result()) == kept(server, request_id)[0]["text"]


def test_what_the_engine_kept_dies_with_it():
    engine = shadow_engine(max_num_reqs=1)
    host = DeafHost(engine)
    with served(engine, host=host) as server, server.http() as http, ThreadPoolExecutor(20) as threads:
        begun = [threads.submit(server.post, COMPLETIONS, status=503, prompt="a", **STEPS) for _ in range(9)]
        server.until(lambda: len(listed(http)) == 9)
        waiting = threads.submit(answered, server)
        server.until(lambda: len(listed(http)) == 10)
        old = listed(http)[-1]["id"]
        fork = threads.submit(http.post, fork_path(old), json={"seq": 0})
        server.until(lambda: server.router.live == 11)
        host.die()
        assert all(each.result() for each in begun)
        assert fork.result().json()["error"]["message"] == "the engine died, and the step to fork from is lost"
        response = http.get(steps_path(old))
        assert response.status_code == 404 and "until their engine ends" in response.text
        (run,) = kept(server, waiting.result())
        assert run["ended"], "the next engine had what waited"
        assert texts_of(forked(server, waiting.result(), seq=0)) == run["text"]


def test_kept_steps_are_bounded_in_positions_and_dropped_in_the_engine_too():
    with served(kept_positions=200) as server, server.http() as http:
        ids = [answered(server, max_tokens=16, ignore_eos=True) for _ in range(12)]
        states = [http.get(steps_path(each)).status_code for each in ids]
        assert states == sorted(states, reverse=True) and {*states} == {200, 404}, "the oldest ones are gone"
        ids.append(answered(server, prompt="x", max_tokens=100, ignore_eos=True))
        answered(server, max_tokens=4)  # the large one goes when the next one comes
        assert {http.get(steps_path(each)).status_code for each in ids} == {404}
        assert len(server.router.recording_store._requests) == 1
    with served(kept_requests=0) as server, server.http() as http:
        assert http.get(steps_path(answered(server))).status_code == 404


@pytest.mark.parametrize(
    "param, value",
    cases({
        "seq": [None, -1, 99, "1"], "index": [1], "seed": [1.5, 1 << 64], "temperature": [-1, 1e-31], "prompt": ["x"],
        "dlstep.accept_threshold": [2], "dlstep.block_size": [4], "dlstep.nope": [1], "dlstep.rule": ["./evil.py", "credit"],
        "dlstep.max_nfe": [4], "dlstep.stream": ["drafts"],
    }),
)  # fmt: skip
def test_a_fork_that_cannot_be_is_refused_by_the_name_of_its_field(shadow, http, param, value):
    _, option, name = param.rpartition("dlstep.")
    body = {"seq": 0} | ({"dlstep": {name: value}} if option else {name: value})
    error = refused(http, body, fork_path(answered(shadow)))
    assert error["param"] == param and "request 0" not in error["message"], error
