"""Requests of actors that die, hang or never come are answered once each, in any history; Ray itself is scripted here."""

import importlib
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from batches import FACTS, numbered
from hypothesis import given, strategies as st

from dlstep.batch.answerer import Failed
from dlstep.batch.desk import About, Answered
from dlstep.batch.options import BatchOptions
from dlstep.batch.runner import answer_all
from dlstep.config import EngineConfig
from dlstep.core import DlstepError


class RayError(Exception):
    """The base of errors of the scripted Ray."""


class RayActorError(RayError):
    """An actor died."""


@dataclass(eq=False)
class Ref:
    """A call: who answers it, and what."""

    actor: "Actor"
    value: Any


class Actor:
    """An actor that is placed or not, works, hangs, or is dead."""

    def __init__(self, ray: "Ray") -> None:
        self._ray, self.placed, self.hangs, self.dead = ray, False, False, False
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
    now: float = 0.0
    actors: list[Actor] = field(default_factory=list)
    results: dict[Ref, Any] = field(default_factory=dict)
    open: list[Ref] = field(default_factory=list)
    answered: Counter[int] = field(default_factory=Counter)

    def called(self, actor: Actor, name: str, arguments: tuple[Any, ...]) -> Ref:
        if name == "answer":
            place, _, content = arguments
            value = Answered(place, 200, {"said": content["body"]["prompt"]}, {"seconds": 1.0})
        else:
            value = {"about": About(FACTS, 2), "where": (7, "node"), "busy": 0.0}[name]
            value = Failed("no model here") if name == "about" and self.failing else value
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
        living = [actor for actor in self.actors if not actor.dead]
        for actor in living[: self.room]:
            actor.placed = True
        if self.faults and living and self.random.random() < 0.3:
            self.faults -= 1
            victim = self.random.choice(living)
            if self.random.random() < 0.5:
                victim.dead = True
            else:
                victim.hangs = True
        for ref in list(self.open):
            if ref.actor.dead:
                self.results[ref] = RayActorError()
            elif ref.actor.placed and not ref.actor.hangs and self.random.random() < 0.5:
                self.results[ref] = ref.value
                if isinstance(ref.value, Answered):
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

    def modules(self) -> dict[str, ModuleType]:
        """The modules that `dlstep.batch.actors` imports."""
        ray, errors, strategies = (ModuleType(name) for name in ("ray", "ray.exceptions", "ray.util.scheduling_strategies"))
        options = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: Actor(self)))
        task = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: None))
        vars(ray).update(
            wait=self.wait, get=self.get, kill=self.kill, init=lambda **_: None, shutdown=lambda: None,
            remote=lambda target: options if isinstance(target, type) else task,
            cluster_resources=lambda: {"CPU": 9.0}, available_resources=lambda: {"CPU": 0.0},
            nodes=lambda: [{"Alive": True, "Resources": {"CPU": 4}}, {"Alive": True, "Resources": {}}],
        )  # fmt: skip
        vars(errors).update(
            RayActorError=RayActorError, RaySystemError=OSError, RayTaskError=type("TaskError", (RayError,), {})
        )
        vars(strategies).update(NodeAffinitySchedulingStrategy=lambda *_, **__: None)
        return {"ray": ray, "ray.exceptions": errors, "ray.util": ModuleType("ray.util"), strategies.__name__: strategies}


def answered(ray: Ray, out: Path, numbers: list[int], **options: Any) -> list[dict[str, Any]]:
    """A batch on the scripted cluster; the lines of its output."""
    with patch.dict(sys.modules, ray.modules()):
        sys.modules.pop("dlstep.batch.actors", None)
        module = importlib.import_module("dlstep.batch.actors")
        with patch.object(module, "monotonic", lambda: ray.now):
            crew = module.Actors(EngineConfig(model="tiny-bd", device="cpu"), BatchOptions(ray="local", **options))
            answer_all(crew, numbered(numbers), out)
    sys.modules.pop("dlstep.batch.actors", None)
    return [json.loads(line) for line in out.read_text().splitlines()]


@given(
    seed=st.integers(0, 10**6),
    room=st.integers(1, 4),
    actors=st.integers(1, 4),
    faults=st.integers(0, 8),
    count=st.integers(1, 30),
)
def test_every_request_is_answered_once_whoever_dies_hangs_or_never_comes(
    seed: int, room: int, actors: int, faults: int, count: int
) -> None:
    ray = Ray(Random(seed), room, faults)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        rows = answered(ray, out, list(range(count)), actors=actors, max_restarts=faults, actor_timeout=5.0)
        assert [row["response"]["body"]["said"] for row in rows] == list(range(count))
        beside = [json.loads(line)["id"] for line in (Path(folder) / "out.run" / "beside.jsonl").read_text().splitlines()]
        assert sorted(beside) == sorted(row["id"] for row in rows), "no answer is noted twice"


def test_it_says_what_it_waits_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(Ray(Random(1), 1, 0), tmp_path / "out", list(range(40)), actors=3)
    said = capsys.readouterr().err
    assert "dlstep: waiting for 2 of 3 actors: each needs 1 CPU, free in the cluster are 0 CPU\n" in said
    assert answered(Ray(Random(1), 1, 0), tmp_path / "other", [1])  # by default: one for each node that has CPUs
    assert capsys.readouterr().err == ""


def test_the_last_actor_that_is_gone_ends_the_batch(tmp_path: Path) -> None:
    ray = Ray(Random(0), 2, 9)
    with pytest.raises(DlstepError, match=r"every actor died more than 0 times \(--max_restarts\)"):
        answered(ray, tmp_path / "out", list(range(500)), actors=2, max_restarts=0, actor_timeout=1.0)


def test_an_engine_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no model here"):
        answered(Ray(Random(0), 1, 0, failing=True), tmp_path / "out", [1], actors=2)
