"""Requests of lost blocks are repeated alone, and only those that kill their engines are errors. Ray Data is scripted here."""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from dlstep.batch.checkpoint import answer_all
from dlstep.batch.lines import content_key
from dlstep.batch.options import BatchOptions
from dlstep.core import DlstepError
from dlstep.engine.config import EngineConfig
from dlstep.serve.messages import EngineFailed

from .batches import FACTS, numbered


class RayError(Exception):
    """The base of errors of the scripted Ray."""


class Ray:
    """Ray with its data. A block that holds a deadly prompt is lost, and each other one `by_chance` among more than one row."""

    def __init__(self, deadly, seed=0, by_chance=0.0, facts=None):
        self.deadly, self.random, self.by_chance = deadly, Random(seed), by_chance
        self.reply, self.answering = facts or (FACTS, 4), FACTS
        self.context = SimpleNamespace(autoscaling_config=SimpleNamespace(), issue_detectors_config=SimpleNamespace())
        self.given = {}

    def from_items(self, items, override_num_blocks):
        size = -(-len(items) // override_num_blocks)
        self.blocks = [items[start : start + size] for start in range(0, len(items), size)]
        return SimpleNamespace(map_batches=self.map_batches)

    def map_batches(self, actor, **given):
        self.given = given
        return SimpleNamespace(iter_rows=self.rows)

    def rows(self):
        self.random.shuffle(self.blocks)
        budget = self.context.max_errored_blocks
        for block in self.blocks:
            numbers = [json.loads(row["content"])["body"]["prompt"] for row in block]
            if self.deadly & {*numbers} or (len(block) > 1 and self.random.random() < self.by_chance):
                budget -= 1
                if budget == -1:
                    raise RayError("The actor died.\n\tpid: 7\nWorker exit type: SYSTEM_ERROR")
                continue
            for row, number in zip(block, numbers, strict=True):
                key = content_key(self.answering, json.loads(row["content"]))
                yield {"place": row["place"], "answer": json.dumps([key, 200, {"text": number}, {"seconds": 1.0}])}

    def modules(self):
        """The modules that `dlstep.batch.ray_pool` imports."""
        ray, data, errors = (ModuleType(name) for name in ("ray", "ray.data", "ray.exceptions"))
        vars(ray).update(
            data=data, init=lambda **_: None, shutdown=lambda: None, get=lambda ref: ref,
            remote=lambda **_: lambda function: SimpleNamespace(remote=lambda *_: self.reply),
            cluster_resources=lambda: {"GPU": 4.0}, available_resources=lambda: {"GPU": 3.0},
            nodes=lambda: [{"Alive": alive, "Resources": {"CPU": cpus}} for alive, cpus in ((True, 0), (True, 8), (False, 8))],
        )  # fmt: skip
        vars(data).update(
            from_items=self.from_items, ActorPoolStrategy=SimpleNamespace,
            DataContext=SimpleNamespace(get_current=lambda: self.context),
        )  # fmt: skip
        vars(errors).update(RayError=RayError)
        return {"ray": ray, "ray.data": data, "ray.exceptions": errors}


def answered(ray, numbers, device="cpu", **options):
    """The status codes of a batch on the scripted cluster, with the prompts that were answered."""
    with patch.dict(sys.modules, ray.modules()), tempfile.TemporaryDirectory() as folder:
        sys.modules.pop("dlstep.batch.ray_pool", None)
        module = importlib.import_module("dlstep.batch.ray_pool")
        pool = module.RayPool(EngineConfig(model="tiny-bd", device=device), BatchOptions(ray="local", **options))
        out = Path(folder) / "out"
        answer_all(pool, numbered(numbers), out)
        pool.close()
        responses = [json.loads(line)["response"] for line in out.read_text().splitlines()]
    sys.modules.pop("dlstep.batch.ray_pool", None)
    return [(response["status_code"], response["body"].get("text")) for response in responses]


@given(
    numbers=st.lists(st.integers(0, 40), min_size=1, max_size=40),
    deadly=st.sets(st.integers(0, 40), max_size=3),
    seed=st.integers(0, 99),
    by_chance=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_exactly_the_requests_that_kill_their_engines_are_errors(numbers, deadly, seed, by_chance):
    expected = [(500, None) if number in deadly else (200, number) for number in numbers]
    assert answered(Ray(deadly, seed, by_chance), numbers) == expected


def test_engines_that_always_die_end_the_batch():
    with pytest.raises(DlstepError, match=r"the actors cannot answer \(The actor died. Worker exit type: SYSTEM_ERROR\): the"):
        answered(Ray({*range(40)}), [*range(40)])


def test_engines_that_differ_end_the_batch():
    ray = Ray(set())
    ray.answering = FACTS | {"seed": 1}
    with pytest.raises(ValueError, match="the actors run different engines"):
        answered(ray, [1, 2])


def test_an_engine_that_cannot_be_made_says_why():
    with pytest.raises(ValueError, match="no model here"):
        answered(Ray(set(), facts=EngineFailed("no model here")), [1])


@pytest.mark.parametrize(
    "options, size, given",
    [
        ({}, {"size": 1}, {"num_gpus": 0, "num_cpus": 1}),
        ({"device": "cuda"}, {"initial_size": 3}, {"num_gpus": 1}),
        ({"device": "cuda", "actors": 2, "max_retries": 7}, {"size": 2}, {"max_task_retries": 7}),
    ],
)
def test_actors_ask_for_gpus_or_for_a_node_each(options, size, given):
    ray = Ray(set())
    answered(ray, [1], **options)
    assert vars(ray.given["compute"]).items() >= size.items() and ray.given.items() >= given.items()
