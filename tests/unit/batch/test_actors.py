"""Requests of actors that die, hang or never come are answered once each. Ray itself is scripted here."""

import importlib
import json
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from dlstep.batch.engine import AnsweredRequest, BatchEngineInfo
from dlstep.batch.options import BatchOptions
from dlstep.batch.runner import answer_all
from dlstep.core import DlstepError
from dlstep.engine.config import EngineConfig
from dlstep.processes import heartbeat
from dlstep.serve.messages import EngineFailed

from .batches import FACTS, numbered


class RayError(Exception):
    """The base of errors of the scripted Ray."""


class RayActorError(RayError):
    """An actor died."""


class OutOfMemoryError(RayError):
    """An actor was killed for its memory; like other deaths, Ray does not count it as a RayActorError."""


class RayTaskError(RayError):
    """A method of an actor raised `cause`."""

    def __init__(self) -> None:
        super().__init__("ray::Answerer.about()\n  Traceback")
        self.cause = RuntimeError("CUDA error")


DEATHS = (
    lambda: RayActorError("The actor died.\n\tpid: 7\nWorker exit type: SYSTEM_ERROR"),
    lambda: OutOfMemoryError("Node 1 is low on memory"),
    RayTaskError,
)
REASONS = ("The actor died. Worker exit type: SYSTEM_ERROR", "Node 1 is low on memory", "RuntimeError('CUDA error')")


@dataclass(eq=False)
class Ref:
    """A call: who answers it, and what."""

    actor: "Actor"
    value: Any


class Actor:
    """An actor that is placed or not, works, hangs, hangs while it loads its engine, or is dead."""

    def __init__(self, ray: "Ray") -> None:
        self._ray, self.placed, self.hangs, self.loads, self.dead = ray, False, False, False, False
        self.begins = 0.0  # time at which its process runs
        ray.actors.append(self)

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._ray.called(self, name, arguments))


@dataclass
class Ray:
    """A cluster with room for so many actors, whose faults are drawn; at least one actor always works in the end."""

    random: Random
    room: int
    faults: int
    failing: bool = False
    pauses: int = 0  # how often the process of the driver is paused, each time for longer than all deadlines
    nodes: list[dict[str, float]] = field(default_factory=lambda: [{"CPU": 4}, {}])
    joining: list[tuple[float, dict[str, float]]] = field(default_factory=list)  # nodes that join later, and when
    options: dict[str, Any] = field(default_factory=dict)  # the options of the actors
    now: float = 0.0
    actors: list[Actor] = field(default_factory=list)
    results: dict[Ref, Any] = field(default_factory=dict)
    open: list[Ref] = field(default_factory=list)
    answered: Counter[int] = field(default_factory=Counter)

    def called(self, actor: Actor, name: str, arguments: tuple[Any, ...]) -> Ref:
        if name == "answer":
            place, _, content = arguments
            value = AnsweredRequest(place, 200, {"text": content["body"]["prompt"]}, {"seconds": 1.0})
        else:
            value = {"about": BatchEngineInfo(FACTS, 2), "where": (7, "node"), "busy": 0.0}[name]
            value = EngineFailed("no model here") if name == "about" and self.failing else value
        ref = Ref(actor, value)
        self.open.append(ref)
        return ref

    def wait(self, refs: list[Ref], num_returns: int, timeout: float) -> tuple[list[Ref], list[Ref]]:
        if timeout:
            self.turn(timeout)
        ready = [ref for ref in refs if ref in self.results]
        return ready[:num_returns], []

    def turn(self, seconds: float) -> None:
        """Let something happen: place actors, answer calls, and now and then kill or stop an actor."""
        self.now += seconds
        if self.pauses and self.random.random() < 0.3:
            self.pauses -= 1
            self.now += 1e4
            return
        self.nodes += [node for when, node in self.joining if when <= self.now]
        self.joining = [(when, node) for when, node in self.joining if when > self.now]
        living = [actor for actor in self.actors if not actor.dead]
        for actor in living[: self.room]:
            actor.placed = self.now >= actor.begins
        if self.faults and living and self.random.random() < 0.3:
            self.faults -= 1
            victim = self.random.choice(living)
            fault = self.random.choice(["dead", "hangs", "loads"])
            setattr(victim, fault, True)
        for ref in list(self.open):
            if ref.actor.dead:
                self.results[ref] = self.random.choice(DEATHS)()
            elif ref.actor.loads and isinstance(ref.value, BatchEngineInfo | EngineFailed):
                continue
            elif ref.actor.placed and not ref.actor.hangs and self.random.random() < 0.5:
                self.results[ref] = ref.value
                if isinstance(ref.value, AnsweredRequest):
                    self.answered[ref.value.place] += 1
            else:
                continue
            self.open.remove(ref)

    def get(self, ref: Ref) -> Any:
        if isinstance(self.results[ref], Exception):
            raise self.results[ref]
        return self.results[ref]

    def kill(self, actor: Actor) -> None:
        actor.hangs, actor.dead = False, True

    def free(self) -> dict[str, float]:
        """Resources that no actor of the batch has."""
        used = sum(actor.placed and not actor.dead for actor in self.actors)
        names = {"GPU": self.options.get("num_gpus", 0), "CPU": self.options.get("num_cpus", 0)}
        return {name: max(0.0, sum(node.get(name, 0) for node in self.nodes) - used * each) for name, each in names.items()}

    def modules(self) -> dict[str, ModuleType]:
        """The modules that `dlstep.batch.actors` imports."""
        ray, errors, strategies = (ModuleType(name) for name in ("ray", "ray.exceptions", "ray.util.scheduling_strategies"))

        def with_options(**given: Any) -> Any:
            self.options = given
            return SimpleNamespace(remote=lambda *_: Actor(self))

        actors = SimpleNamespace(options=with_options)
        task = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: None))
        vars(ray).update(
            wait=self.wait, get=self.get, kill=self.kill, init=lambda **_: None, shutdown=lambda: None,
            remote=lambda target: actors if isinstance(target, type) else task,
            cluster_resources=lambda: dict(sum(map(Counter, self.nodes), Counter())), available_resources=self.free,
            nodes=lambda: [{"Alive": True, "Resources": node} for node in self.nodes],
        )  # fmt: skip
        vars(errors).update(RayError=RayError, RayActorError=RayActorError, RaySystemError=OSError, RayTaskError=RayTaskError)
        vars(strategies).update(NodeAffinitySchedulingStrategy=lambda *_, **__: None)
        return {"ray": ray, "ray.exceptions": errors, "ray.util": ModuleType("ray.util"), strategies.__name__: strategies}


CPU, CUDA = EngineConfig(model="tiny-bd", device="cpu"), EngineConfig(model="tiny-bd", device="cuda")


def answered(ray: Ray, out: Path, numbers: list[int], config: EngineConfig = CPU, **options: Any) -> list[dict[str, Any]]:
    """A batch on the scripted cluster; the lines of its output."""
    with patch.dict(sys.modules, ray.modules()):
        sys.modules.pop("dlstep.batch.actors", None)
        module = importlib.import_module("dlstep.batch.actors")
        with patch.object(heartbeat, "monotonic", lambda: ray.now), patch.object(module, "LOADING", 30.0):
            pool = module.Actors(config, BatchOptions(ray="local", **options))
            answer_all(pool, numbered(numbers), out)
    sys.modules.pop("dlstep.batch.actors", None)
    return [json.loads(line) for line in out.read_text().splitlines()]


@given(
    seed=st.integers(0, 10**6),
    room=st.integers(1, 4),
    actors=st.integers(1, 4),
    faults=st.integers(0, 8),
    count=st.integers(1, 30),
    pauses=st.integers(0, 3),
)
def test_every_request_is_answered_once_whoever_dies_hangs_or_never_comes(
    seed: int, room: int, actors: int, faults: int, count: int, pauses: int
) -> None:
    ray = Ray(Random(seed), room, faults, pauses=pauses)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        rows = answered(ray, out, list(range(count)), actors=actors, max_restarts=faults, actor_timeout=5.0)
        assert [row["response"]["body"]["text"] for row in rows] == list(range(count))
        beside = [json.loads(line)["id"] for line in (Path(folder) / "out.run" / "beside.jsonl").read_text().splitlines()]
        assert sorted(beside) == sorted(row["id"] for row in rows), "no answer is noted twice"


@given(seed=st.integers(0, 10**6), pauses=st.integers(1, 5))
def test_a_pause_of_the_driver_costs_no_actor(seed: int, pauses: int) -> None:
    ray = Ray(Random(seed), 3, 0, pauses=pauses)
    with tempfile.TemporaryDirectory() as folder:
        assert len(answered(ray, Path(folder) / "out", list(range(40)), actors=3, max_restarts=0, actor_timeout=60.0)) == 40
    assert len(ray.actors) == 3 and not any(actor.dead for actor in ray.actors)


@pytest.mark.parametrize("fault", ["loads", "hangs"])
def test_an_actor_that_never_loads_is_replaced(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its process still answers heartbeats (`loads`), or is stopped before it can (`hangs`)."""
    ray = Ray(Random(2), 2, 0)
    start = Actor.__init__

    def first_is_faulty(actor: Actor, cluster: Ray) -> None:
        start(actor, cluster)
        setattr(actor, fault, len(cluster.actors) == 1)

    with patch.object(Actor, "__init__", first_is_faulty):
        assert len(answered(ray, tmp_path / "out", list(range(400)), actors=2, actor_timeout=9.0)) == 400
    output = capsys.readouterr().err
    reason = {"loads": "did not load its engine", "hangs": "did not begin"}[fault]
    assert f"actor 1 {reason} within 90 s; 0 requests move, another one is started" in output
    assert len(ray.actors) == 3


def test_an_actor_on_a_slow_node_begins_at_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its imports take longer than a new actor has at first."""
    ray, start = Ray(Random(3), 1, 0), Actor.__init__

    def slow(actor: Actor, cluster: Ray) -> None:
        start(actor, cluster)
        actor.begins = cluster.now + 45.0

    with patch.object(Actor, "__init__", slow):
        assert len(answered(ray, tmp_path / "out", list(range(9)), actors=1, max_restarts=0, actor_timeout=2.0)) == 9
    output = capsys.readouterr().err
    assert [limit for limit in (20, 40, 80) if f"did not begin within {limit} s; 0 requests move" in output] == [20, 40]


@pytest.mark.parametrize("death", range(len(DEATHS)))
def test_the_reason_of_a_death_is_reported(death: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with patch(f"{__name__}.DEATHS", DEATHS[death : death + 1]):
        for seed in range(20):  # until the fault is a death
            answered(Ray(Random(seed), 2, 1), tmp_path / f"out{seed}", list(range(60)), actors=2, actor_timeout=5.0)
    assert f"died, or its node did: {REASONS[death]}; " in capsys.readouterr().err


@given(
    gpus=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    later=st.lists(st.integers(0, 5), max_size=3),
    size=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 10**6),
)
def test_actors_fit_the_gpus_of_each_node_and_join_with_new_nodes(
    gpus: list[int], later: list[int], size: int, seed: int
) -> None:
    """An actor with several ranks needs all of its GPUs on one node."""
    fitting = sum(count // size for count in [*gpus, *later])
    nodes = [[{"CPU": 8.0, "GPU": float(count)} for count in counts] for counts in (gpus, later)]
    ray = Ray(Random(seed), max(fitting, 1), 0, nodes=nodes[0], joining=[(3.0, node) for node in nodes[1]])
    config = replace(CUDA, tensor_parallel_size=size) if sum(gpus) else CPU
    with tempfile.TemporaryDirectory() as folder:
        answered(ray, Path(folder) / "out", list(range(300)), config)
    if sum(gpus):
        assert ray.options["num_gpus"] == ray.options["num_cpus"] == size
        assert len(ray.actors) == max(1, fitting)
    else:
        assert ray.options["num_gpus"] == 0 and len(ray.actors) == len(gpus) + len(later), "one for each node"


@given(seed=st.integers(0, 10**6), faults=st.integers(1, 3))
def test_an_actor_that_is_given_up_is_not_started_as_a_new_one(seed: int, faults: int) -> None:
    ray = Ray(Random(seed), 4, faults, nodes=[{"CPU": 8.0, "GPU": 4.0}])
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()) as output:
        answered(ray, Path(folder) / "out", list(range(200)), CUDA, max_restarts=0, actor_timeout=5.0)
    assert output.getvalue().count("it is not replaced") <= faults
    assert len(ray.actors) == 4 + output.getvalue().count("did not begin within 50 s;")


def test_it_says_what_it_waits_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(Ray(Random(1), 1, 0), tmp_path / "out", list(range(40)), actors=3)
    output = capsys.readouterr().err
    assert "dlstep: waiting for 2 of 3 actors: each needs 1 CPU on one node, and the cluster has 3 CPU free\n" in output
    assert answered(Ray(Random(1), 1, 0), tmp_path / "other", [1])  # by default: one for each node that has CPUs
    assert capsys.readouterr().err == ""


def test_the_last_actor_that_is_gone_ends_the_batch(tmp_path: Path) -> None:
    ray = Ray(Random(0), 2, 9)
    with pytest.raises(DlstepError, match=r"every actor died more than 0 times \(--max_restarts\)"):
        answered(ray, tmp_path / "out", list(range(500)), actors=2, max_restarts=0, actor_timeout=1.0)


def test_an_engine_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no model here"):
        answered(Ray(Random(0), 1, 0, failing=True), tmp_path / "out", [1], actors=2)
