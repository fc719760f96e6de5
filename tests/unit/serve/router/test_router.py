"""Clients that go away, more requests than there is room for, and limits in time."""

import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from dlstep import SamplingParams
from dlstep.core import Request
from dlstep.serve.engine_loop import EngineLoop
from dlstep.serve.messages import Cancel, Submit
from dlstep.serve.router.replica import AHEAD, Replica

from ....helpers.serving import CHAT, COMPLETIONS, TEMPLATE, bearer, served, shadow_engine
from ..http.conftest import GOOD, GOOD_CHAT
from ..http.test_server import raw, request
from .test_replica import outcome

REQUESTS = 200
LONG = {"max_tokens": 100, "ignore_eos": True}


@pytest.mark.parametrize("strategy", ["multi_bd", "d2f"])
def test_random_requests_and_aborts_in_few_pages_leave_nothing_behind(strategy):
    """The engine loop alone: every request ends exactly once, aborted or not, and no page stays owned."""
    draws = random.Random(3)
    engine = shadow_engine(strategy=strategy)
    loop, ends, tokens = EngineLoop(engine), Counter(), {}
    waiting = [
        Submit(
            Request(
                number,
                tuple(draws.choices(range(3, 90), k=draws.randint(1, 60))),
                SamplingParams(max_tokens=draws.randint(1, 60)),
            ),
            drafts=draws.random() < 0.5,
        )
        for number in range(REQUESTS)
    ]
    live = []
    aborted = set()

    def apply(news):
        tokens.setdefault(news.id, []).extend(news.tokens)
        if news.finish_info is not None:
            ends[news.id] += 1
            live.remove(news.id)
            assert (news.finish_info.reason == "abort") <= (news.id in aborted)
            assert news.finish_info.reason != "length" or len(tokens[news.id]) == asked[news.id].params.max_tokens

    asked = {submit.id: submit.request for submit in waiting}
    while waiting or not loop.idle:
        coming = [waiting.pop() for _ in range(min(len(waiting), draws.randint(0, 12)))]
        live += [submit.id for submit in coming]
        leaving = [number for number in live if draws.random() < 0.08]
        aborted.update(leaving)
        loop.execute([*coming, *map(Cancel, leaving)])
        report = loop.step()
        for news in report.news:
            apply(news)
    assert ends == Counter(range(REQUESTS)) and len(aborted) > 50
    assert report.load[:2] == (0, 0) and sum(report.load[1:]) == 220


@pytest.mark.parametrize("stream", [False, True])
def test_dropped_clients_free_their_pages_at_once(stream, capfd):
    engine = shadow_engine(seconds=0.05, num_pages=1200, max_model_len=1024)
    with served(engine, log_requests=True) as server:
        bodies = [{"prompt": f"{n}", "stream": stream, "max_tokens": 1000, "ignore_eos": True} for n in range(32)]
        connections = [raw(server.url, request(body)) for body in bodies]
        server.until(lambda: server.load.running == 16 and server.router.live == 32)
        for connection in connections:
            connection.close()
        server.until_idle()
        assert 'finished_reason="abort"} 32.0' in server.router.metrics.text().decode()
        assert server.choice(prompt="next", max_tokens=4)
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    dropped = [row for row in rows if row["finish_reasons"] == ["abort"]]
    assert len(dropped) == 32 and all(row["seconds"] > 0 for row in dropped)


def test_owners_of_keys_take_turns(monkeypatch):
    """One owner's many requests do not delay another owner's few; a full queue refuses further ones."""
    engine = shadow_engine(max_num_reqs=1)
    order, send, had = [], Replica.send, 1 + AHEAD

    def watched(replica, pending, now):
        order.append(pending.owner)
        send(replica, pending, now)

    monkeypatch.setattr(Replica, "send", watched)
    with served(engine, keys=("first", "second"), max_queue=33 - had) as server, ThreadPoolExecutor(40) as threads:
        engine.driver.gate.clear()
        asked = []
        for key, count, live in (("first", 30, 30), ("second", 3, 33)):
            asked += [threads.submit(server.choice, key=key, prompt="x", max_tokens=16) for _ in range(count)]
            server.until(lambda live=live: server.router.live == live)
        assert server.post(COMPLETIONS, key="first", status=429, **GOOD)["error"]["code"] == "queue_full"
        assert "dlstep_requests_refused_total 1.0" in server.router.metrics.text().decode()
        engine.driver.gate.set()
        for each in asked:
            each.result()
    # The engine has the first `had` before the second owner comes; then the owners take turns.
    first = order[0]
    assert order[:had] == [first] * had and len(order) == 33
    assert sum(owner != first for owner in order[had : had + 6]) == 3, order


def test_a_request_that_waits_too_long_is_told_to_come_again():
    engine, had = shadow_engine(max_num_reqs=1), 1 + AHEAD
    with served(engine, queue_timeout=0.2) as server, server.http() as http, ThreadPoolExecutor(24) as threads:
        engine.driver.gate.clear()
        under_way = [threads.submit(outcome, http, number) for number in range(24)]
        server.until(lambda: sum(each.done() for each in under_way) == 24 - had)
        engine.driver.gate.set()
        found = Counter(each.result() for each in under_way)
        assert found == {(200, None): had, (429, "queue_timeout"): 24 - had}
        server.until_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long_ends_with_what_is_settled(stream):
    with served(shadow_engine(seconds=0.02), request_timeout=0.3) as server:
        body = {"prompt": "x", **LONG, "dlstep": {"max_nfe": 1000}}
        last = server.events(**body)[-1] if stream else server.post(COMPLETIONS, **body)
        (choice,) = last["choices"]
        told = last["dlstep"] if stream else choice["dlstep"]
        assert (told["finish_reason"], choice["finish_reason"]) == ("abort", "length")
        assert "0.3 seconds" in told["error"]
        server.until_idle()


def test_a_request_can_be_cancelled_by_its_id_and_by_its_owner_only():
    engine = shadow_engine(seconds=0.1)
    with served(engine, keys=("mine", "other")) as server, server.http() as http:
        body = {"prompt": "x", **LONG, "stream": True, "dlstep": {"stream": "drafts"}}
        with http.stream("POST", COMPLETIONS, json=body, headers=bearer("mine")) as response:
            lines = response.iter_lines()
            path = f"/v1/requests/{json.loads(next(lines).removeprefix('data: '))['id']}/cancel"
            engine.driver.gate.clear()
            server.post(path, key="other", status=404)
            server.post(path, key="mine")
            engine.driver.gate.set()
            assert "cancelled" in [line for line in lines if line][-2]
        server.until_idle()
        assert server.post(path, key="mine", status=404)["error"]["code"] == "request_not_found"


def test_a_forward_that_fails_is_done_once_more_and_then_ends_its_requests_and_no_others():
    engine, body = shadow_engine(), {"prompt": "x", "max_tokens": 32}
    with served(engine) as server:
        wanted = server.choice(**body)["text"]
        engine.driver.failures = [RuntimeError("out of memory")]
        assert server.choice(**body)["text"] == wanted
        engine.driver.failures = [RuntimeError("/secret/path broke")] * 2
        error = server.post(COMPLETIONS, status=500, **body)["error"]
        assert error["code"] == "engine_error" and "secret" not in str(error)
        assert server.choice(**body)["text"] == wanted
        server.until_idle()


REQUESTS_OF_ALL_KINDS = [
    (COMPLETIONS, GOOD),
    (COMPLETIONS, GOOD | {"n": 2}),
    (COMPLETIONS, GOOD | {"stream": True}),
    (COMPLETIONS, GOOD | {"stream": True, "dlstep": {"stream": "steps"}}),
    (CHAT, GOOD_CHAT),
    ("/v1/responses", {"input": "x", "max_output_tokens": 16}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 16, "stream": True}),
    ("/v1/reads", {"prompt": "x", "template": ["it is ", ["a", "b"]]}),
]


@pytest.mark.parametrize("ahead", [0, pytest.param(100, marks=pytest.mark.full)], ids=["router", "engine"])
def test_requests_that_have_not_started_at_shutdown_get_503(ahead, monkeypatch):
    engine = shadow_engine(max_num_reqs=1)
    monkeypatch.setattr("dlstep.serve.router.replica.AHEAD", ahead)
    with served(engine, template=TEMPLATE, drain_seconds=60.0) as server, ThreadPoolExecutor(24) as threads:

        def answer(number):
            path, body = REQUESTS_OF_ALL_KINDS[number % len(REQUESTS_OF_ALL_KINDS)]
            return httpx2.post(server.url + path, json=body, timeout=60)

        engine.driver.gate.clear()
        running = threads.submit(answer, 0)
        server.until(lambda: engine.driver.runs == 1)
        waiting = [threads.submit(answer, number) for number in range(16)]
        server.until(lambda: server.router.live == 19)
        server.server.ask_to_end()
        server.until(lambda: server.router.phase == "draining")
        engine.driver.gate.set()
        answered = running.result()
        assert answered.status_code == 200 and answered.json()["choices"][0]["dlstep"]["finish_reason"] == "length"
        for number, found in enumerate([each.result() for each in waiting]):
            assert (found.status_code, found.headers.get("retry-after")) == (503, "1"), (number, found.text)
            assert found.json()["error"]["code"] == "not_ready"
