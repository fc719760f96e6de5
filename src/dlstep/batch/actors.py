"""Actors of Ray that answer, on any number of nodes. Ray places them, starts them again, and sends again what they had."""

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
from ray.exceptions import (  # pyright: ignore[reportMissingImports]
    ActorDiedError,
    RayActorError,
    RaySystemError,
    RayTaskError,
)

from ..config import EngineConfig
from ..core import DlstepError
from ..core.checks import short
from ..threads import spin_less
from .answerer import Answerer, Failed
from .desk import About, Answered
from .lines import Json
from .options import BatchOptions

LOCAL = "local"  # the address that stands for a cluster of this machine alone, which ends with the batch
PATIENCE = 10.0  # seconds that the head of a cluster has to answer
AT_A_TIME = 1 << 16  # calls of an actor that may wait: the driver bounds them


class Actors:
    """A crew of actors; the one with the fewest requests gets the next. Raises ValueError for a cluster out of reach."""

    def __init__(self, config: EngineConfig, options: BatchOptions) -> None:
        self._max_restarts = options.max_restarts
        _join(options.ray)
        with ExitStack() as cluster:  # which is left if there is no crew
            cluster.callback(ray.shutdown)
            gpus = 0 if config.device == "cpu" else int(ray.cluster_resources().get("GPU", 0))
            nodes = sum(node["Alive"] for node in ray.nodes())
            variables = {**spin_less(), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            actor = ray.remote(Answerer).options(
                max_restarts=options.max_restarts,
                max_task_retries=-1,
                max_concurrency=AT_A_TIME,
                num_cpus=1,
                num_gpus=int(gpus > 0),
                scheduling_strategy="SPREAD",
                runtime_env={"env_vars": variables},
            )
            given = config, options.served_model_name, options.template(), str(Path.cwd())
            self._actors = [actor.remote(*given) for _ in range(options.actors or gpus or nodes)]
            self._calls: dict[Any, tuple[Any, int]] = {}  # call: its actor, and the place of the request
            self._live = dict.fromkeys(self._actors, 0)
            found = [self._got(call) for call in [each.about.remote() for each in self._actors]]
            facts = [each.facts for each in found]
            for other in facts[1:]:
                if other != facts[0]:
                    raise ValueError(f"the actors do not have the same engine: {short(other)} and {short(facts[0])}")
            cluster.pop_all()
        self.about = About(facts[0], sum(each.seats for each in found))

    @property
    def live(self) -> int:
        """Requests without an answer."""
        return len(self._calls)

    def add(self, place: int, key: str, content: Json) -> None:
        """Send a request to an actor."""
        actor = min(self._actors, key=self._live.__getitem__)
        self._live[actor] += 1
        self._calls[actor.answer.remote(place, key, content)] = actor, place

    def step(self) -> list[Answered]:
        """Wait for answers of any actor. Raises DlstepError when one died too often."""
        calls = list(self._calls)
        ray.wait(calls, num_returns=1)
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        answers: list[Answered] = []
        for call in done:
            actor, _ = self._calls.pop(call)
            self._live[actor] -= 1
            answers.append(self._got(call))
        return answers

    def close(self) -> None:
        """End the actors, and the cluster if it was started for them."""
        ray.shutdown()

    def _got(self, call: Any) -> Any:
        """The result of a call. Raises ValueError where an engine could not be made."""
        try:
            found = ray.get(call)
        except RayTaskError as error:
            raise DlstepError(f"an actor failed: {error.cause!r}; the answers so far are kept, run it again") from error
        except (ActorDiedError, RayActorError) as error:
            raise DlstepError(
                f"an actor died more than {self._max_restarts} times (--max_restarts), or its node did: the answers so far "
                "are kept, run the same command again"
            ) from error
        if isinstance(found, Failed):
            raise ValueError(found.why)
        return found


def _join(address: str | None) -> None:
    """Start a cluster here, or join one. Raises ValueError for an address that leads to none."""
    host, colon, port = (address or "").rpartition(":")
    try:
        if colon and port.isdigit():  # Ray would wait for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        ray.init(address=address, include_dashboard=False if address == LOCAL else None, logging_level="ERROR")
    except (OSError, RaySystemError, RuntimeError, ValueError) as error:
        raise ValueError(f"--ray {address} leads to no cluster of Ray: {' '.join(str(error).split())}") from error
