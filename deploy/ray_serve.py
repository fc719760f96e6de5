"""The server on a Ray cluster: as many replicas as the load asks for, each `dlstep serve`'s own application with one engine.

Needs `pip install 'dlstep[serve]' 'ray[serve]'` on every node. Run it from the root of the repository:

    DLSTEP_MODEL=/path/to/checkpoint serve run deploy.ray_serve:app

Options of the engine and of the server are YAML in DLSTEP_ENGINE and DLSTEP_SERVER, as '{max_num_reqs: 32}'. DLSTEP_GPUS are
the GPUs of each replica (0: it decodes on a CPU), DLSTEP_MOST_REPLICAS bounds their number. DLSTEP_API_KEY is the API key.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import yaml
from fastapi import FastAPI
from ray import serve

from dlstep.engine.config import engine_config
from dlstep.serve.engine_process import ProcessHost
from dlstep.serve.http.app import create_app
from dlstep.serve.router.front import Front
from dlstep.serve.settings import ServeOptions

VARIABLES = {name: value for name, value in os.environ.items() if name.startswith("DLSTEP_")}


def options_of(name: str) -> dict[str, Any]:
    """The options in a variable. Raises ValueError unless they are names and values."""
    found = yaml.safe_load(VARIABLES.get(name, "{}"))
    if not isinstance(found, dict):
        raise ValueError(f"{name} must hold YAML of names and values, as '{{max_num_reqs: 32}}'")
    return found


def build() -> FastAPI:
    """The application of one replica, whose engine lives as long as it does."""
    config = engine_config({"model": VARIABLES.get("DLSTEP_MODEL")} | options_of("DLSTEP_ENGINE"))
    options = ServeOptions(**options_of("DLSTEP_SERVER"))
    front = Front([ProcessHost(config)], options)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        del app
        async with front:
            await front.until(lambda: front.phase in ("ready", "failed"))
            if front.failure:
                raise RuntimeError(front.failure)
            yield
            await front.drain()

    app = create_app(front, options.api_keys(VARIABLES))
    app.router.lifespan_context = life
    return app


@serve.deployment(
    ray_actor_options={
        "num_gpus": float(VARIABLES.get("DLSTEP_GPUS", "1")),
        "runtime_env": {"env_vars": VARIABLES},  # replicas run elsewhere
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
    """Requests under way decide how many of these there are."""


app = Replica.bind()
