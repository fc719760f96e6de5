"""Engines that die: which requests fail, which wait, and when the server gives up."""

import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from dlstep.engine.loader import LoadedEngine
from dlstep.processes import Heartbeat
from dlstep.serve.engine_loop import info_of
from dlstep.serve.router.replica import AHEAD

from ....helpers.serving import ThreadHost, served, shadow_engine


class Mortal(ThreadHost):
    """A host whose first engines take requests, answer none, and die or fall silent when told to; later ones work."""

    def __init__(self, engine: LoadedEngine, lives: int) -> None:
        super().__init__(engine)
        self.info, self.lives = info_of(engine), lives
        self.deaf: Connection | None = None
        self.silent = threading.Event()

    def start(self) -> Connection:
        """Start an engine of either kind."""
        if not self.lives:
            return super().start()
        self.lives -= 1
        ours, self.deaf = Pipe()
        self.deaf.send(self.info)
        self.silent.clear()
        threading.Thread(target=self._beat, args=(self.deaf,), daemon=True).start()
        return ours

    def _beat(self, deaf: Connection) -> None:
        while not self.silent.wait(0.5):
            deaf.send(Heartbeat(0))

    def kill(self, reason: str) -> None:
        """End an engine of either kind."""
        if self.deaf is not None:
            self._reason = f"the engine {reason}"
            self.die()
        else:
            super().kill(reason)

    def die(self) -> None:
        """Let the engine die."""
        assert self.deaf is not None
        self.silent.set()
        deaf, self.deaf = self.deaf, None
        deaf.close()


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "falls silent"])
def test_sent_requests_fail_and_waiting_ones_are_answered(dies: bool) -> None:
    engine = shadow_engine(max_num_reqs=1)
    host, sent = Mortal(engine, lives=1), 1 + AHEAD
    with served(engine, host=host, heartbeat_timeout=3.0) as server, server.http() as http, ThreadPoolExecutor(16) as threads:

        def answer(number: int) -> tuple[int, str | None]:
            response = http.post("/v1/completions", json={"prompt": f"{number}", "max_tokens": 8})
            return response.status_code, response.json().get("error", {}).get("code")

        under_way = [threads.submit(answer, number) for number in range(sent + 4)]
        server.until(lambda: server.router.live == sent + 4)
        host.die() if dies else host.silent.set()
        found = sorted(each.result() for each in under_way)
        assert found == [(200, None)] * 4 + [(503, "engine_died")] * sent
        assert server.router.replicas.deaths == 1 and server.router.phase == "ready"
        server.until_idle()


def test_the_server_gives_up_after_so_many_restarts() -> None:
    engine = shadow_engine()
    host = Mortal(engine, lives=2)
    with served(engine, host=host, max_restarts=1) as server, server.http() as http:
        host.die()
        server.until(lambda: server.router.replicas.deaths == 1 and server.router.phase == "ready")
        assert "dlstep_engine_deaths 1.0" in http.get("/metrics").text
        host.die()
        server.thread.join(60)
        assert not server.thread.is_alive()
        assert server.router.failure == "the engine died 2 times; last reason: the engine's thread ended"
        assert not server.router.replicas.not_made_reason
