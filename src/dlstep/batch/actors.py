"""Ray actors that answer requests on any number of nodes.

Each slot has one actor, an engine in a separate process that Ray places on a node. Placed actors
work while others wait for a node. Without a number of actors, slots are added while the cluster has
room. A lost actor (dead, or late for a deadline) is replaced, and its requests move to other actors
immediately. Its answers are ignored, so no request is answered twice.
"""

import os
import signal
import socket
import sys
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ray  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError, RaySystemError, RayTaskError  # pyright: ignore[reportMissingImports]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore[reportMissingImports]

from ..core import DlstepError
from ..core.checks import short
from ..engine.config import EngineConfig
from ..engine.threads import spin_less
from ..evaluate.answerer_pool import START as LOADING
from ..processes import Clock
from ..serve.messages import EngineFailed
from .answerer import Answerer
from .engine import AnsweredRequest, BatchEngineInfo
from .lines import Json
from .options import BatchOptions

LOCAL = "local"  # the address of a cluster on this machine only, which ends with the batch
PATIENCE = 10.0  # seconds until the head of a cluster must accept a connection
AT_A_TIME = 1 << 16  # concurrent calls of an actor that Ray allows; `Actors` sends fewer
BEAT = 1.0  # seconds between two checks for late actors
FIRST_NOTICE, NEXT_NOTICE = 5.0, 60.0  # seconds until the first and between later notices about missing actors
GROWTH = 5.0  # seconds between two checks of the cluster's free resources
LONGEST = 300  # characters of an error message of Ray
MOST_LATE = 6  # maximum doublings of the time within which the process of a new actor must run
STEPS = 10.0  # a forward pass may take this many times `actor_timeout`, because the first ones compile


class AnswererActor(Answerer):
    """An answerer that reports its process and node."""

    async def where(self) -> tuple[int, str]:
        """Return the process id and the id of the cluster node."""
        return os.getpid(), ray.get_runtime_context().get_node_id()


class _UnansweredRequest(NamedTuple):
    """A request without an answer."""

    place: int
    key: str
    content: Json


@dataclass(slots=True, eq=False)
class _Slot:
    """A slot and the state of its actor. Times are those of `Actors._now`.

    `actor` is None once the slot's actors have died too often; `about` is None until it has loaded.
    """

    number: int
    restarts: int
    actor: Any = None
    about: BatchEngineInfo | None = None
    where: tuple[int, str] | None = None
    live: int = 0
    begun: float = 0.0  # start of the actor; once its process runs, start of the process
    heartbeat_sent: float | None = None  # time of the heartbeat request that is not answered yet
    last_result: float = 0.0
    late: int = 0  # actors in a row whose process did not run in time


class _Call(NamedTuple):
    """A pending remote call to an actor."""

    slot: _Slot
    kind: Literal["where", "about", "busy", "answer"]
    request: _UnansweredRequest | None = None


class Actors:
    """A pool of actors. The actor with the fewest requests gets the next one.

    The pool starts once one actor is ready. Raises ValueError if the cluster is unreachable, or if
    no actor can create its engine.
    """

    def __init__(self, config: EngineConfig, options: BatchOptions) -> None:
        self._options = options
        # A sum of capped intervals, so a pause of this process makes no actor late.
        self._now, self._clock = 0.0, Clock()
        self._calls: dict[Any, _Call] = {}
        self._waiting: deque[_UnansweredRequest] = deque()
        self._facts: dict[str, Any] | None = None
        self._report_at, self._grow_at = FIRST_NOTICE, GROWTH
        _join(options.ray)
        with ExitStack() as cluster:  # leave the cluster if the pool cannot start
            cluster.callback(ray.shutdown)
            gpus = 0 if config.device == "cpu" else int(ray.cluster_resources().get("GPU", 0))
            size = config.tensor_parallel_size
            self._needs = {"CPU": size, **({"GPU": size} if gpus else {})}
            variables = {**spin_less(), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            self._class = ray.remote(AnswererActor).options(
                max_restarts=0,  # this module replaces actors and moves their requests
                max_task_retries=0,
                max_concurrency=AT_A_TIME,
                num_cpus=size,
                num_gpus=self._needs.get("GPU", 0),
                scheduling_strategy="SPREAD",
                runtime_env={"env_vars": variables},
            )
            self._arguments = config, options.served_model_name, options.template(), str(Path.cwd())
            self._slots: list[_Slot] = []
            self._add(options.actors or max(1, self._room()))
            while self._facts is None:
                self.step()
            cluster.pop_all()

    @property
    def about(self) -> BatchEngineInfo:
        """The facts of the engines, and the number of concurrent requests of the ready ones."""
        assert self._facts is not None, "the constructor returns once an actor is ready"
        return BatchEngineInfo(self._facts, sum(slot.about.seats for slot in self._slots if slot.about is not None))

    @property
    def live(self) -> int:
        """The number of requests without an answer."""
        return len(self._waiting) + sum(slot.live for slot in self._slots)

    def add(self, place: int, key: str, content: Json) -> None:
        """Queue a request, and send it if an actor has room."""
        self._waiting.append(_UnansweredRequest(place, key, content))
        self._send()

    def step(self) -> list[AnsweredRequest]:
        """Wait up to `BEAT` seconds for answers. Raises DlstepError if all actors are lost."""
        calls = list(self._calls)
        if ray.wait(calls, num_returns=1, timeout=BEAT)[0]:
            done, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        else:
            done = []
        self._now += self._clock.passed()
        answers: list[AnsweredRequest] = []
        for ref in done:
            call = self._calls.pop(ref, None)
            if call is None:  # the actor of this call was lost in the meantime
                continue
            result = self._processed(ref, call)
            if isinstance(result, AnsweredRequest):
                answers.append(result)
        self._watch()
        self._send()
        return answers

    def close(self) -> None:
        """End the actors, and the cluster if it was started for them."""
        ray.shutdown()

    def _add(self, count: int) -> None:
        """Add slots, and start their actors."""
        for _ in range(count):
            self._slots.append(_Slot(len(self._slots) + 1, self._options.max_restarts))
            self._start(self._slots[-1])

    def _start(self, slot: _Slot) -> None:
        """Start a new actor for a slot."""
        slot.actor, slot.begun, slot.heartbeat_sent = self._class.remote(*self._arguments), self._now, None
        self._calls[slot.actor.where.remote()] = _Call(slot, "where")
        self._calls[slot.actor.about.remote()] = _Call(slot, "about")

    def _send(self) -> None:
        """Send queued requests to ready actors, up to twice the number that each decodes."""
        while self._waiting:
            able = [slot for slot in self._slots if slot.about is not None and slot.live < 2 * slot.about.seats]
            if not able:
                return
            slot, request = min(able, key=lambda slot: slot.live), self._waiting.popleft()
            slot.live += 1
            self._calls[slot.actor.answer.remote(*request)] = _Call(slot, "answer", request)

    def _processed(self, ref: Any, call: _Call) -> AnsweredRequest | None:
        """Process the result of a call; return it if it is an answer."""
        slot = call.slot
        try:
            result = ray.get(ref)
        except RayError as error:  # not always a RayActorError: if memory ran out, Ray raises an OutOfMemoryError
            self._lost(slot, f"died, or its node did: {_reason(error)}", call.request)
            return None
        slot.last_result = self._now
        if isinstance(result, EngineFailed):
            slot.restarts = 0  # a new actor would fail in the same way
            self._lost(slot, f"cannot create its engine: {result.error}", call.request, ValueError(result.error))
        elif call.kind == "answer":
            slot.live -= 1
            return result
        elif call.kind == "where":
            slot.where, slot.begun, slot.late = result, self._now, 0
        elif call.kind == "busy":
            slot.heartbeat_sent = None
            if result > STEPS * self._options.actor_timeout:
                self._lost(slot, f"has been in one forward pass for {result:.0f} s")
        else:
            if self._facts is not None and result.facts != self._facts:
                raise ValueError(
                    f"the actors run different engines, {short(result.facts)} and {short(self._facts)}: use the same "
                    "checkpoint and package versions on every node"
                )
            slot.about, self._facts = result, result.facts
        return None

    def _watch(self) -> None:
        """Check every actor, use free resources, and report actors that are not placed yet."""
        for slot in self._slots:
            if slot.actor is not None:
                self._check(slot)
        if self._options.actors is None and self._now >= self._grow_at:
            self._grow_at = self._now + GROWTH
            if room := self._room():
                _log(f"the cluster has room for {room} more actors, which are started")
                self._add(room)
        if self._absent and self._now >= self._report_at:
            self._report_at = self._now + NEXT_NOTICE
            self._report_absent()

    def _check(self, slot: _Slot) -> None:
        """Give up an actor that missed a deadline; otherwise request a heartbeat if one is due."""
        now, limit = self._now, self._options.actor_timeout
        loading = max(LOADING, STEPS * limit)
        if slot.where is None:
            # Ray does not report whether the actor hangs or still waits for resources, so this
            # does not count as a restart. The next actor gets twice the time, because imports may
            # take minutes on a busy node.
            starting = STEPS * limit * 2**slot.late
            if now - slot.begun > starting:
                slot.restarts, slot.late = slot.restarts + 1, min(slot.late + 1, MOST_LATE)
                self._lost(slot, f"did not begin within {starting:g} s")
        elif slot.heartbeat_sent is not None and now - slot.heartbeat_sent > limit:
            self._lost(slot, f"sent no heartbeat for {limit:g} s (--actor_timeout)")
        elif slot.about is None and now - slot.begun > loading:
            self._lost(slot, f"did not load its engine within {loading:g} s")
        elif slot.heartbeat_sent is None and now - slot.last_result > min(limit / 4, 10.0):
            slot.heartbeat_sent = now
            self._calls[slot.actor.busy.remote()] = _Call(slot, "busy")

    def _report_absent(self) -> None:
        """Log how many actors wait, what each of them needs, and what the cluster has free."""
        free = ray.available_resources()
        needed = " and ".join(f"{count:g} {name}" for name, count in self._needs.items())
        free_now = " and ".join(f"{free.get(name, 0):g} {name}" for name in self._needs)
        missing = f"{self._absent} of {len(self._slots)} actors"
        _log(f"waiting for {missing}: each needs {needed} on one node, and the cluster has {free_now} free")

    def _lost(
        self, slot: _Slot, reason: str, request: _UnansweredRequest | None = None, error: Exception | None = None
    ) -> None:
        """Give up an actor: queue its requests again, and start a new actor unless `max_restarts` is used up."""
        requests = [request] if request is not None else []
        for ref, call in list(self._calls.items()):
            if call.slot is slot:
                del self._calls[ref]
                requests += [call.request] if call.request is not None else []
        self._waiting.extendleft(sorted(requests, reverse=True, key=lambda request: request.place))
        _kill(slot.actor, slot.where)
        slot.actor, slot.about, slot.where, slot.live = None, None, None, 0
        again = slot.restarts > 0
        after = "another one is started" if again else "it is not replaced"
        _log(f"actor {slot.number} {reason}; {len(requests)} requests move, {after}")
        if again:
            slot.restarts -= 1
            self._start(slot)
        elif all(slot.actor is None for slot in self._slots):
            raise error or DlstepError(
                f"every actor died more than {self._options.max_restarts} times (--max_restarts), or its node did: the answers "
                "so far are kept, run the same command again"
            )

    @property
    def _absent(self) -> int:
        """The number of actors whose process does not run yet."""
        return sum(slot.actor is not None and slot.where is None for slot in self._slots)

    def _room(self) -> int:
        """Return how many more actors fit: by free GPUs, or without GPUs one per node.

        An actor needs all of its GPUs on one node. Slots that lost their actor count, so they are
        not replaced by new slots.
        """
        size = self._needs["CPU"]
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if "GPU" not in self._needs:
            return max(0, sum(node.get("CPU", 0) >= size for node in nodes) - len(self._slots))
        most = sum(int(node.get("GPU", 0)) // size for node in nodes) - len(self._slots)
        return max(0, min(most, int(ray.available_resources().get("GPU", 0)) // size - self._absent))


def _reason(error: RayError) -> str:
    """Return the message of a Ray error on one line, without lines of ids (with tabs)."""
    lines = [line for line in str(error).splitlines() if not line.startswith("\t")]
    message = repr(error.cause) if isinstance(error, RayTaskError) else " ".join(" ".join(lines).split())
    return message[:LONGEST]


def _kill(actor: Any, where: tuple[int, str] | None) -> None:
    """Kill an actor by a task that sends SIGKILL: `ray.kill` cannot end stopped processes."""
    if actor is None:
        return
    if where is not None:
        pid, node = where
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        with suppress(RaySystemError, ValueError):
            ray.remote(_kill_process).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote(pid)
    ray.kill(actor)


def _kill_process(pid: int) -> None:
    """Kill a process of this node, unless its id now belongs to another program."""
    with suppress(OSError):
        if b"AnswererActor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def _log(message: str) -> None:
    print(f"dlstep: {message}", file=sys.stderr, flush=True)


def _join(address: str | None) -> None:
    """Start a cluster on this machine, or join one. Raises ValueError if no cluster is reachable at the address."""
    host, colon, port = (address or "").rpartition(":")
    try:
        if colon and port.isdigit():  # without a cluster there, `ray.init` would wait for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        ray.init(address=address, include_dashboard=False if address == LOCAL else None, logging_level="ERROR")
    except (OSError, RaySystemError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"no Ray cluster is reachable at --ray {address} ({reason}): start one with `ray start --head`, or omit --ray"
        ) from error
