"""Engines on a Ray cluster, as actors of Ray Data.

Ray Data sends blocks of requests to a pool of actors, restarts actors whose process or node died, and
repeats their blocks. A block whose actor died at each attempt is lost. Its requests are then sent one
by one. A request that is lost again is taken to kill its engine and gets an error.
"""

import json
import logging
import socket
import sys
import warnings
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
import ray.data  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

from ..core import DlstepError
from ..engine.config import EngineConfig
from ..engine.devices import spin_less
from ..serve.http.errors import ApiError
from ..serve.messages import EngineFailed
from .actor import EngineActor, about
from .engine import AnsweredRequest
from .lines import Json
from .options import BatchOptions

LOCAL = "local"  # the address of a cluster on this machine only, which ends with the batch
PATIENCE = 10.0  # seconds until the head of a cluster must accept a connection
NOTICE = 30.0  # seconds between two notices that the first engine is not ready
BLOCKS = 8  # blocks in an actor, which together hold twice as many requests as it decodes at a time
HOPELESS = 16  # lost single requests that end the batch if it has no answer yet
LONGEST = 300  # characters of an error message of Ray


class RayPool:
    """A pool of actors that answers the requests added before the first `step`.

    Raises ValueError if the cluster is unreachable, or if no engine can be created.
    """

    def __init__(self, config: EngineConfig, options: BatchOptions) -> None:
        self._options = options
        self._missing: dict[int, tuple[str, Json]] = {}  # the key and the content of each request without an answer
        self._answers: Generator[AnsweredRequest] | None = None
        _join(options.ray)
        with ExitStack() as cluster:  # leave the cluster if the pool cannot start
            cluster.callback(ray.shutdown)
            size, gpus = config.tensor_parallel_size, int(ray.cluster_resources().get("GPU", 0))
            variables = {**spin_less(), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            self._remote = {
                "num_cpus": size,
                "num_gpus": 0 if config.device == "cpu" or not gpus else size,
                "runtime_env": {"env_vars": variables},
            }
            self._arguments = config, options.served_model_name, options.template(), str(Path.cwd())
            self.facts, self._own_seats = self._first()
            cluster.pop_all()

    seats = sys.maxsize  # Ray Data distributes the requests, so it needs all of them

    @property
    def live(self) -> int:
        """The number of requests without an answer."""
        return len(self._missing)

    def add(self, place: int, key: str, content: Json) -> None:
        """Add a request."""
        self._missing[place] = key, content

    def step(self) -> list[AnsweredRequest]:
        """Wait for the next answer. Raises DlstepError if the engines cannot answer."""
        if self._answers is None:
            self._answers = self._all()
        return [next(self._answers)]

    def close(self) -> None:
        """End the actors, and the cluster if it was started for them."""
        if self._answers is not None:
            self._answers.close()
        ray.shutdown()

    def _first(self) -> tuple[dict[str, Any], int]:
        """Return the facts of an engine, which then ends, and the number of requests that it decodes at a time."""
        reply = ray.remote(**self._remote, max_calls=1)(about).remote(*self._arguments)
        while not ray.wait([reply], timeout=NOTICE)[0]:
            needs = {"CPU": self._remote["num_cpus"], "GPU": self._remote["num_gpus"]}
            needed = " and ".join(f"{number} {name}" for name, number in needs.items() if number)
            free = ray.available_resources()
            has = " and ".join(f"{free.get(name, 0):g} {name}" for name, number in needs.items() if number)
            _log(f"the first engine is not ready: it needs {needed} on one node, and the cluster has {has} free")
        found = ray.get(reply)
        if isinstance(found, EngineFailed):
            raise ValueError(found.error)
        return found

    def _all(self) -> Generator[AnsweredRequest]:
        """Yield the answers to all requests."""
        many = len(self._missing)
        yield from self._answered(max(1, 2 * self._own_seats // BLOCKS), BLOCKS, most_lost=-1)
        if self._missing:
            _log(f"{len(self._missing)} requests lost their engines, which may be due to one of them: each is repeated alone")
            yield from self._answered(1, 1, most_lost=-1 if len(self._missing) < many else HOPELESS)
        for place in list(self._missing):
            del self._missing[place]
            fault = ApiError(500, "the engine's process died each time it answered this request", code="engine_died")
            yield AnsweredRequest(place, fault.status, fault.body, {"seconds": 0.0})

    def _answered(self, rows: int, blocks: int, most_lost: int) -> Generator[AnsweredRequest]:
        """Yield the answers to all requests except those of lost blocks. Each actor has `blocks` blocks of `rows` requests."""
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it logs each lost block with a traceback
        warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")  # pyproject.toml bounds the version of Ray
        context = ray.data.DataContext.get_current()
        context.max_errored_blocks = most_lost
        context.max_consecutive_actor_init_deaths = self._options.max_retries
        context.execution_no_progress_timeout_s = -1  # `EngineActor` limits the time of a forward pass
        context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0  # as soon as all actors have all blocks
        context.issue_detectors_config.detectors = []
        context.enable_progress_bars = context.print_on_execution_start = False
        requests = [{"place": place, "content": json.dumps(content)} for place, (_, content) in self._missing.items()]
        data = ray.data.from_items(requests, override_num_blocks=-(-len(requests) // rows)).map_batches(
            EngineActor,
            fn_constructor_args=(self._options.actor_timeout, *self._arguments),
            batch_size=None,
            compute=ray.data.ActorPoolStrategy(
                **self._sizes(),
                max_tasks_in_flight_per_actor=blocks,
                max_concurrent_calls_per_actor=blocks,
                enable_true_multi_threading=True,
            ),
            max_restarts=-1,
            max_task_retries=self._options.max_retries,
            **self._remote,
        )
        try:
            for row in data.iter_rows():
                key, *answer = json.loads(row["answer"])
                request = self._missing.pop(row["place"], None)
                if request is not None and request[0] != key:
                    raise ValueError(
                        "the actors run different engines: use the same checkpoint and package versions on every node"
                    )
                yield AnsweredRequest(row["place"], *answer)
        except RayError as error:
            raise DlstepError(
                f"the actors cannot answer ({_reason(error)}): the answers so far are kept, run the same command again"
            ) from error

    def _sizes(self) -> dict[str, int]:
        """Return the number of actors: that of `--actors`, as many as the GPUs allow, or one per node without GPUs."""
        if self._options.actors is not None:
            return {"size": self._options.actors}
        if gpus := self._remote["num_gpus"]:
            return {"min_size": 1, "initial_size": max(1, int(ray.available_resources().get("GPU", 0)) // gpus)}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return {"size": max(1, sum(node.get("CPU", 0) >= self._remote["num_cpus"] for node in nodes))}


def _reason(error: RayError) -> str:
    """Return the message of a Ray error on one line, without lines of ids (with tabs)."""
    lines = [line for line in str(error).splitlines() if not line.startswith("\t")]
    return " ".join(" ".join(lines).split())[:LONGEST]


def _log(message: str) -> None:
    print(f"dlstep: {message}", file=sys.stderr, flush=True)


def _join(address: str | None) -> None:
    """Start a cluster on this machine, or join one. Raises ValueError if no cluster is reachable at the address."""
    host, colon, port = (address or "").rpartition(":")
    try:
        if colon and port.isdigit():  # without a cluster there, `ray.init` would wait for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        ray.init(address=address, include_dashboard=False if address == LOCAL else None, logging_level=logging.ERROR)
    except (OSError, RayError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"no Ray cluster is reachable at --ray {address} ({reason}): start one with `ray start --head`, or omit --ray"
        ) from error
