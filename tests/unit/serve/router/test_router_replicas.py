"""Several engines behind one router: shared prefixes are found, dead or restarted engines lose no request."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from time import sleep

import pytest

from dlstep.serve.engine_loop import known_facts
from dlstep.serve.router import router
from dlstep.serve.settings import ServeOptions

from ....helpers.serving import COMPLETIONS, DeafHost, ThreadHost, served, shadow_engine
from .test_replica_faults import asked, counts, until_states


def hosts_of(count, **options):
    """Engines without a network, each in a separate thread."""
    return [ThreadHost(shadow_engine(seconds=0.002, num_pages=800, **options)) for _ in range(count)]


def test_another_engine_answers_requests_whose_clients_received_nothing():
    deaf, other = DeafHost(shadow_engine()), hosts_of(1)[0]
    with served(hosts=[deaf, other]) as server, server.http() as http, ThreadPoolExecutor(16) as threads:
        until_states(server, "ready", "ready")
        steps = threads.submit(server.post, COMPLETIONS, status=503, **asked(9), dlstep={"stream": "steps"})
        server.until(lambda: server.router.live == 1)
        ways = (server.events, server.choice)
        under_way = [threads.submit(ways[number % 2], **asked(number)) for number in range(8)]
        server.until(lambda: len(server.router.replicas[0].sent) >= 4)
        timers = [pending.queue_timer for pending in server.router.replicas[0].sent.values()]
        assert all(timer is not None and timer.cancelled() for timer in timers), "another wait has a timer of its own"
        deaf.die()
        assert not any("engine_died" in str(each.result()) for each in under_way)
        assert steps.result(), "its frames were sent"
        told = http.get("/ready").json()
        assert told["status"] == "ready" and [each["deaths"] for each in told["replicas"]] == [1, 0]
        assert counts(server, "dlstep_replica_deaths")['{replica="0"}'] == 1
        server.until(lambda: server.router.replicas[0].phase == "ready")
        server.until_idle()


def test_a_request_is_restarted_only_once():
    """The request itself may kill engines."""
    first, second = DeafHost(shadow_engine()), DeafHost(shadow_engine())
    with served(hosts=[first, second]) as server, ThreadPoolExecutor(2) as threads:
        until_states(server, "ready", "ready")
        answer = threads.submit(server.post, COMPLETIONS, status=503, **asked(1))
        server.until(lambda: len(server.router.replicas[0].sent) == 1)
        first.die()
        server.until(lambda: len(server.router.replicas[1].sent) == 1)
        server.until(lambda: server.router.replicas[0].phase == "ready")
        second.die()
        assert answer.result()


def test_engines_that_load_at_once_share_one_tokenizer(monkeypatch):
    """Each has a thread, and concurrent imports of transformers fail."""
    loading, loads = Lock(), []

    def load(folder):
        assert loading.acquire(blocking=False)
        sleep(0.05)
        loading.release()
        loads.append(folder)
        return len(loads)

    monkeypatch.setattr(router, "load_tokenizer", load)
    facts = known_facts(shadow_engine())._replace(folder=Path("model"))
    shared = router.Router([], ServeOptions())
    with ThreadPoolExecutor(4) as threads:
        assert {each.tokenizer for each in threads.map(shared.known, [facts] * 4)} == {1}


@pytest.mark.parametrize("replica", [0, 1])
def test_a_fork_stays_with_the_engine_that_has_its_steps(replica):
    with served(hosts=hosts_of(2)) as server:
        until_states(server, "ready", "ready")
        other = server.router.replicas[1 - replica]
        other.phase = "restarting"
        made = server.post(COMPLETIONS, **asked(2), dlstep={"stream": "steps"})
        other.phase = "ready"
        again = server.post(COMPLETIONS, **asked(2))
        cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached > 0, "so does another request with the same prompt"
        told = [
            counts(server, f"dlstep_replica_{name}").total() for name in ("prompt_tokens_total", "cached_tokens_total", "up")
        ]
        assert told == [2 * len(asked(2)["prompt"]), cached, 2]
        fork = server.post(f"/v1/requests/{made['id']}/fork", seq=2)
        assert fork["choices"][0]["text"] == made["choices"][0]["text"]
        keepers = [
            pending.keeper for request in server.router.recording_store.of("key-0") for pending in request.pending_requests
        ]
        assert keepers == [replica, replica]
