"""The engine of an actor. It does not depend on Ray."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from traceback import print_exception

from ..core import DlstepError
from ..core.plugins import searched
from ..engine.config import EngineConfig
from ..serve.messages import EngineFailed
from .engine import AnsweredRequest, BatchEngine, BatchEngineInfo
from .lines import Json


class Answerer:
    """An engine that decodes in a separate thread while requests arrive."""

    def __init__(self, config: EngineConfig, name: str | None, template: str | None, folder: str) -> None:
        self._waiting: dict[int, asyncio.Future[AnsweredRequest]] = {}
        self._coming: list[tuple[int, str, Json]] = []
        self._stepping: asyncio.Task[None] | None = None
        self._began: float | None = None  # start of the current forward pass
        self._thread = ThreadPoolExecutor(1, "dlstep-engine")
        # Load in the thread, so that this process answers heartbeats meanwhile.
        self._loading = self._thread.submit(_loaded, config, name, template, folder)

    async def about(self) -> BatchEngineInfo | EngineFailed:
        """Return the facts of the engine, or why it could not be created."""
        engine = await asyncio.wrap_future(self._loading)
        return engine if isinstance(engine, EngineFailed) else engine.about

    async def busy(self) -> float:
        """Return the seconds that the current forward pass has taken so far; 0 if none is running."""
        return 0.0 if self._began is None else monotonic() - self._began

    async def answer(self, place: int, key: str, content: Json) -> AnsweredRequest | EngineFailed:
        """Answer a request, batched with all waiting ones. Repeated calls are idempotent."""
        engine = await asyncio.wrap_future(self._loading)
        if isinstance(engine, EngineFailed):
            return engine
        if place not in self._waiting:
            self._waiting[place] = asyncio.get_running_loop().create_future()
            self._coming.append((place, key, content))
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.create_task(self._steps(engine))
            self._stepping.add_done_callback(_end_if_failed)
        return await asyncio.shield(self._waiting[place])

    async def _steps(self, engine: BatchEngine) -> None:
        """Run forward passes until all requests are answered."""
        while self._coming or engine.live:
            coming, self._coming = self._coming, []
            self._began = monotonic()
            for answered in await asyncio.get_running_loop().run_in_executor(self._thread, _stepped, engine, coming):
                self._waiting.pop(answered.place).set_result(answered)
            self._began = None


def _loaded(config: EngineConfig, name: str | None, template: str | None, folder: str) -> BatchEngine | EngineFailed:
    """Load the engine. Return why it cannot be created if that fails."""
    from ..engine.loader import load_engine

    try:
        with searched(Path(folder)):
            return BatchEngine(load_engine(config), name, template)
    except (ValueError, OSError, DlstepError) as error:
        return EngineFailed.because(error)


def _end_if_failed(task: "asyncio.Task[None]") -> None:
    """End the process if the stepping task failed, so that the driver starts a new process."""
    if not task.cancelled() and (error := task.exception()) is not None:
        print_exception(error)
        os._exit(1)


def _stepped(engine: BatchEngine, coming: list[tuple[int, str, Json]]) -> list[AnsweredRequest]:
    """Add new requests, then run one step. End the process if the model fails repeatedly."""
    for place, key, content in coming:
        engine.add(place, key, content)
    try:
        return engine.step()
    except DlstepError as error:
        print(f"dlstep: {error}", file=sys.stderr, flush=True)
        os._exit(1)
