"""Servers for tests: the whole HTTP stack in a thread, around an engine in another one."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Event, Thread
from typing import Any

import httpx2
from openai import AsyncOpenAI, OpenAI

from dlstep import LLM, Config, Plan, Samples, Spec, init
from dlstep.core import Driver
from dlstep.engine.loader import LoadedEngine
from dlstep.models.description import pieces
from dlstep.processes import Heart, Worker, disconnect
from dlstep.serve.engine_loop import execute_commands, known_facts
from dlstep.serve.http.server import Server, listen
from dlstep.serve.messages import EngineLoad
from dlstep.serve.router.router import Router
from dlstep.serve.settings import ServeOptions
from dlstep.strategies import load
from dlstep.testing.shadow import ShadowDriver
from dlstep.tiny import problems
from training.tokenizer import EOS_ID, MASK_ID, build_tokenizer

from .waiting import until

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
PAGE_SIZE = 8


@cache
def tiny_llm() -> LLM:
    """The embedded model, loaded once for all tests of a worker; its engine is served, too."""
    return LLM(max_num_reqs=32)


def questions(count: int) -> list[str]:
    """Prompts that the embedded model can answer."""
    return [problem.prompt for problem in problems(count, seed=5)]


class Paced:
    """A driver with a configurable duration, a gate that blocks it, and scheduled failures."""

    def __init__(self, driver: Driver, seconds: float = 0.0) -> None:
        self.driver, self.seconds = driver, seconds
        self.runs = 0
        self.gate = Event()
        self.gate.set()
        self.failures: list[BaseException] = []

    def run(self, plan: Plan) -> Samples:
        self.runs += 1
        self.gate.wait()
        time.sleep(self.seconds)
        samples = self.driver.run(plan)
        if self.failures:
            raise self.failures.pop(0)
        return samples


def shadow_engine(
    seconds: float = 0.0, num_pages: int = 220, strategy: str = "multi_bd", special: tuple[str, ...] = (), **limits: int
) -> LoadedEngine:
    """An engine without a network, on the embedded models' tokenizer with more special tokens. Answers end at their length."""
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": list(special)})
    mask_id, options = (None, {"canvas_length": 8}) if strategy == "diffusion_gemma" else (MASK_ID, {"block_size": 8})
    spec = Spec(mask_id=mask_id, eos_ids=(EOS_ID,), vocab_size=len(tokenizer), pieces=pieces(tokenizer))
    budgets: dict[str, Any] = {"max_model_len": 128, "max_num_batched_tokens": 512, "max_num_reqs": 16} | limits
    config = Config(spec, page_size=PAGE_SIZE, num_pages=num_pages, **budgets)
    state = init(config, load(strategy)(**options))
    driver = Paced(ShadowDriver(PAGE_SIZE, num_pages, spec, 0.0, places=4), seconds)
    return LoadedEngine(state, driver, tokenizer, "shadow")


class ThreadWorker(Worker):
    """Runs an engine in a thread, watched as a process is.

    A thread cannot be killed: `kill` disconnects its pipe, and the thread ends at its next read or
    write.
    """

    def __init__(self, run: Callable[[Connection], None]) -> None:
        self.name, self.inbox, self._said = "the engine", [], ""
        self.connection, connection = get_context("spawn").Pipe()
        self.thread = Thread(target=run, args=(connection,), name="dlstep-engine", daemon=True)
        self.thread.start()

    @property
    def alive(self) -> bool:
        return self.thread.is_alive()

    def kill(self, reason: str = "was killed") -> None:
        self._said = f"the engine {reason}"
        disconnect(self.connection)

    def end(self, seconds: float = 1.0) -> None:
        self.thread.join(min(seconds, 1.0))

    @property
    def reason(self) -> str:
        return self._said or "the engine's thread ended"

    ending = reason


class ThreadHost:
    """Runs an existing engine in a thread, `worker`."""

    def __init__(self, engine: LoadedEngine) -> None:
        self._engine = engine
        self.worker: ThreadWorker | None = None

    def start(self) -> Worker:
        """Start the thread."""
        self.worker = ThreadWorker(self.run)
        return self.worker

    def run(self, connection: Connection) -> None:
        """Be the engine."""
        execute_commands(self._engine, Heart(connection))


class DeafHost(ThreadHost):
    """A host whose first engines take requests, answer none, and die or fall silent when told to; later ones work."""

    def __init__(self, engine: LoadedEngine, lives: int = 1) -> None:
        super().__init__(engine)
        self.lives = lives
        self.heart: Heart | None = None  # of a deaf engine

    def run(self, connection: Connection) -> None:
        if not self.lives:
            super().run(connection)
            return
        self.lives -= 1
        self.heart = Heart(connection)
        self.heart.send(known_facts(self._engine))
        with suppress(EOFError, OSError):
            while True:
                connection.recv()

    def die(self) -> None:
        """Let the deaf engine die."""
        assert self.heart is not None
        disconnect(self.heart.connection)

    def fall_silent(self) -> None:
        """Let the deaf engine send no more heartbeats."""
        assert self.heart is not None
        self.heart._closed.set()


def bearer(key: str) -> dict[str, bytes]:
    """The header with an API key, if there is one."""
    return {"Authorization": f"Bearer {key}".encode()} if key else {}


@dataclass
class Served:
    """A running server."""

    url: str
    router: Router
    server: Server
    thread: Thread

    def client(self, **options: Any) -> OpenAI:
        """The official client, unchanged; it does not try again, so that tests see every answer."""
        return OpenAI(base_url=f"{self.url}/v1", **({"api_key": "none", "max_retries": 0} | options))

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """The official async client, unchanged."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", **({"api_key": "none", "max_retries": 0} | options))

    def http(self) -> httpx2.Client:
        """A plain HTTP client."""
        return httpx2.Client(base_url=self.url, timeout=60, verify=False)  # loading certificates takes 50 ms

    def post(self, path: str, *, key: str = "", status: int = 200, **body: Any) -> Any:
        """What the server answers to a body."""
        with self.http() as http:
            response = http.post(path, json=body, headers=bearer(key))
        assert response.status_code == status, response.text
        return response.json()

    def choice(self, **body: Any) -> Any:
        """The first choice of a completion."""
        return self.post(COMPLETIONS, **body)["choices"][0]

    def events(self, path: str = COMPLETIONS, **body: Any) -> list[Any]:
        """The events of a stream, the last one without `[DONE]`."""
        with self.http() as http:
            response = http.post(path, json={"stream": True, **body})
        assert response.status_code == 200, response.text
        *lines, last = [line for line in response.text.splitlines() if line.startswith("data: ")]
        assert last == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    @property
    def load(self) -> EngineLoad:
        """The total requests and pages of all engines."""
        return EngineLoad(*map(sum, zip(*[replica.load for replica in self.router.replicas], strict=True)))

    def until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until a condition holds; fail after too long."""
        until(holds, seconds, lambda: f"still not after {seconds} seconds: {self.load}, {self.router.live} live")

    def until_idle(self) -> None:
        """Wait until no request runs or waits and no page is owned."""
        self.until(lambda: not self.router.live and self.load[:2] == (0, 0))


@contextmanager
def served(
    engine: LoadedEngine | None = None,
    keys: tuple[str, ...] = (),
    host: Any = None,
    hosts: list[Any] | None = None,
    ready: Callable[[], None] = lambda: None,
    waits: bool = True,
    admin_keys: tuple[str, ...] = (),
    template: str | None = None,
    **options: Any,
) -> Iterator[Served]:
    """A server around an engine, ready to answer unless not `waits`; it drains at the end. `template` is that of chats.

    Without an engine, it has one without a network.

    A host has a method `start`, which returns a worker.
    """
    engine = engine or shadow_engine()
    chosen = ServeOptions(**({"port": 0, "log_requests": False, "drain_seconds": 1.0, "heartbeat_timeout": 60.0} | options))
    starts = [each.start for each in hosts or [host or ThreadHost(engine)]]
    router = Router(starts, chosen)
    router._tokenizer, router._template = engine.tokenizer, template
    server = Server(router, keys, ready, admin_keys)
    with listen(chosen.host, chosen.port) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = Thread(target=lambda: asyncio.run(server.serve([listener])), name="http")
        thread.start()
        running = Served(url, router, server, thread)
        try:
            running.until(lambda: server.started and (not waits or router.phase == "ready"))
            yield running
        finally:
            if thread.is_alive():
                server.ask_to_end()
            thread.join(20)
            assert not thread.is_alive(), "the server did not end"
