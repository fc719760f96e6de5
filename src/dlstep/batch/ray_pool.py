"""Engines on a Ray cluster, as actors of Ray Data.

Ray Data sends blocks of requests to a pool of actors, restarts actors whose process or node died, and
repeats their blocks. A block whose actor died at each attempt is lost. Its requests are then sent one
by one. A request that is lost again is taken to kill its engine and gets an error.
"""

import json
import logging
import os
import socket
import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path

import ray  # pyright: ignore[reportMissingImports]
import ray.data  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

from ..core import DlstepError, Refusal
from ..engine.config import EngineConfig
from ..serve.http.errors import body_of
from ..serve.messages import EngineFailed
from ..serve.settings import template_in
from ..text.words import one_line
from .engine import EngineActor, EngineSource, about
from .lines import AnsweredRequest, BatchItem
from .options import BatchOptions

LOCAL = "local"  # the address of a cluster on this machine only, which ends with the batch
PATIENCE = 10.0  # seconds until the head of a cluster must accept a connection
BLOCKS = 8  # blocks in an actor, which together hold twice as many requests as it decodes at a time
HOPELESS = 16  # lost single requests that end the batch if it has no answer yet
PASSED_ON = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "HF_HUB_DISABLE_PROGRESS_BARS")  # environment variables for actors
LONGEST = 300  # characters of an error message of Ray


class RayPool:
    """A pool of actors.

    Raises ValueError if the cluster is unreachable, or if no engine can be created.
    """

    def __init__(self, config: EngineConfig, options: BatchOptions) -> None:
        self._options = options
        _join(options.ray)
        with ExitStack() as cluster:  # leave the cluster if the pool cannot start
            cluster.callback(ray.shutdown)
            size, gpus = config.tensor_parallel_size, int(ray.cluster_resources().get("GPU", 0))
            variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            self._remote = {
                "num_cpus": size,
                "num_gpus": 0 if config.device == "cpu" or not gpus else size,
                "runtime_env": {"env_vars": variables},
            }
            template = template_in(options.chat_template)
            self._source = EngineSource(config, options.served_model_name, template, str(Path.cwd()))
            found = ray.get(ray.remote(**self._remote, max_calls=1)(about).remote(self._source))
            if isinstance(found, EngineFailed):
                raise ValueError(found.error)
            self.facts, self._seats = found
            cluster.pop_all()

    def close(self) -> None:
        """End the actors, and the cluster if it was started for them."""
        ray.shutdown()

    def answers(self, requests: Sequence[BatchItem]) -> Generator[list[AnsweredRequest]]:
        """Yield the answers to all requests as they arrive. Raises DlstepError if the engines cannot answer."""
        missing = {request[0]: request for request in requests}
        yield from self._answered(missing, max(1, 2 * self._seats // BLOCKS), BLOCKS, most_lost=-1)
        if missing:
            lost = f"{len(missing)} requests lost their engines, which may be due to one of them"
            print(f"dlstep: {lost}: each is run again alone", file=sys.stderr, flush=True)
            yield from self._answered(missing, 1, 1, most_lost=-1 if len(missing) < len(requests) else HOPELESS)
        fault = Refusal("", "engine_died", "the process of the engine died each time that this request ran")
        # Status 500, not the 503 of a server: the request is the likely cause, so that waiting would not help.
        yield [AnsweredRequest(place, 500, body_of(fault), {"seconds": 0.0}) for place in missing]

    def _answered(
        self, missing: dict[int, BatchItem], rows: int, blocks: int, most_lost: int
    ) -> Generator[list[AnsweredRequest]]:
        """Yield the answers to all requests except those of lost blocks, which stay in `missing`.

        Each actor has `blocks` blocks of `rows` requests.
        """
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it logs each lost block with a traceback
        warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")  # pyproject.toml bounds the version of Ray
        context = ray.data.DataContext.get_current()
        context.max_errored_blocks = most_lost
        context.max_consecutive_actor_init_deaths = self._options.max_retries
        context.execution_no_progress_timeout_s = -1  # `EngineActor` limits the time of a forward pass
        context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0  # as soon as all actors have all blocks
        context.issue_detectors_config.detectors = []
        context.enable_progress_bars = context.print_on_execution_start = False
        items = [{"place": place, "content": json.dumps(content)} for place, _, content in missing.values()]
        data = ray.data.from_items(items, override_num_blocks=-(-len(items) // rows)).map_batches(
            EngineActor,
            fn_constructor_args=(self._options.engine_timeout, self._source),
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
                request = missing.pop(row["place"], None)
                if request is not None and request[1] != key:
                    raise ValueError(
                        "the actors run different engines: use the same checkpoint and package versions on every node"
                    )
                yield [AnsweredRequest(row["place"], *answer)]
        except RayError as error:
            raise DlstepError(
                f"the actors cannot answer ({one_line(error)[:LONGEST]}): the answers so far are kept, run the command again"
            ) from error

    def _sizes(self) -> dict[str, int]:
        """Return the number of actors: that of `--actors`, as many as the GPUs allow, or one per node without GPUs."""
        if self._options.actors is not None:
            return {"size": self._options.actors}
        if gpus := self._remote["num_gpus"]:
            return {"min_size": 1, "initial_size": max(1, int(ray.available_resources().get("GPU", 0)) // gpus)}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return {"size": max(1, sum(node.get("CPU", 0) >= self._remote["num_cpus"] for node in nodes))}


def _join(address: str | None) -> None:
    """Start a cluster on this machine, or join one. Raises ValueError if no cluster is reachable at the address."""
    host, colon, port = (address or "").rpartition(":")
    try:
        if colon and port.isdigit():  # without a cluster there, `ray.init` would wait for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        ray.init(address=address, include_dashboard=False if address == LOCAL else None, logging_level=logging.ERROR)
    except (OSError, RayError, RuntimeError, ValueError) as error:
        remedy = "start one with `ray start --head`, or omit --ray"
        raise ValueError(f"no Ray cluster is reachable at --ray {address} ({one_line(error)}): {remedy}") from error
