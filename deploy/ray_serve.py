"""The server on a Ray cluster, which scales the number of replicas with the load.

Each replica runs the application of `dlstep serve` with one engine. Every node needs
`pip install 'dlstep[serve]' 'ray[serve]'`. Run it from the root of the repository:

    DLSTEP_MODEL=/path/to/checkpoint serve run deploy.ray_serve:app

Environment variables:

- DLSTEP_ENGINE, DLSTEP_SERVER: options of the engine and of the server as YAML, as in
  '{max_num_reqs: 32}'.
- DLSTEP_GPUS: GPUs per replica (default: 1); 0 decodes on a CPU.
- DLSTEP_MOST_REPLICAS: maximum number of replicas (default: 4).
- DLSTEP_API_KEY: the API key.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import yaml
from fastapi import FastAPI
from ray import serve

from dlstep.engine.config import engine_config
from dlstep.processes import Worker
from dlstep.serve.engine_loop import run_process
from dlstep.serve.http.app import create_app
from dlstep.serve.router.router import Router
from dlstep.serve.settings import ServeOptions

VARIABLES = {name: value for name, value in os.environ.items() if name.startswith("DLSTEP_")}


def options_of(name: str) -> dict[str, Any]:
    """Return the options in an environment variable. Raises ValueError unless it is a mapping."""
    options = yaml.safe_load(VARIABLES.get(name, "{}"))
    if not isinstance(options, dict):
        raise ValueError(f"{name} must be a YAML mapping of options, as in '{{max_num_reqs: 32}}'")
    return options


def build() -> FastAPI:
    """Build the application of one replica. Its engine runs during the lifespan of the application."""
    config = engine_config({"model": VARIABLES.get("DLSTEP_MODEL")} | options_of("DLSTEP_ENGINE"))
    options = ServeOptions(**options_of("DLSTEP_SERVER"))
    router = Router([partial(Worker, run_process, config, 0, name="dlstep-engine-0")], options)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        del app
        async with router:
            await router.until(lambda: router.phase in ("ready", "failed"))
            if router.failure:
                raise RuntimeError(router.failure)
            yield
            await router.drain()

    app = create_app(router, options.api_keys())
    app.router.lifespan_context = life
    return app


@serve.deployment(
    ray_actor_options={
        "num_gpus": float(VARIABLES.get("DLSTEP_GPUS", "1")),
        "runtime_env": {"env_vars": VARIABLES},  # replicas run on other nodes
    },
    autoscaling_config={
        "min_replicas": 1,
        "max_replicas": int(VARIABLES.get("DLSTEP_MOST_REPLICAS", "4")),
        "target_ongoing_requests": 32,
    },
    max_ongoing_requests=256,
    graceful_shutdown_timeout_s=60,  # longer than drain_seconds
)
@serve.ingress(build)
class Replica:
    """A replica. Ray sets their number by the number of running requests."""


app = Replica.bind()
