"""The engine of a Ray actor. Ray Data calls it from several threads; the requests of all calls are decoded together.

It does not depend on Ray.
"""

import faulthandler
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from traceback import print_exc
from typing import Any

from ..core import DlstepError
from ..core.options import searched
from ..engine.config import EngineConfig
from ..engine.loader import load_engine
from ..engine.step_limit import StepLimit
from ..serve.messages import EngineFailed
from .engine import BatchEngine
from .lines import Json, content_key

LOADING = 1800.0  # minimum time limit for loading, in seconds


def loaded(config: EngineConfig, name: str | None, template: str | None, folder: str) -> BatchEngine:
    """Load an engine. Relative paths of strategies and rules are those of `folder`."""
    with searched(Path(folder)):
        return BatchEngine(load_engine(config), name, template)


def about(
    config: EngineConfig, name: str | None, template: str | None, folder: str
) -> tuple[dict[str, Any], int] | EngineFailed:
    """Return the facts of an engine and its number of concurrent requests, or why it could not be created."""
    try:
        engine = loaded(config, name, template, folder)
        return engine.facts, engine.seats
    except (ValueError, OSError, DlstepError) as error:
        return EngineFailed.because(error)


class EngineActor:
    """A callable that answers a batch of rows with `place` and `content` (JSON). Concurrent calls are decoded together.

    If a forward pass takes longer than `engine_timeout` allows, the process ends, so that Ray restarts the actor.
    """

    def __init__(
        self, engine_timeout: float, config: EngineConfig, name: str | None, template: str | None, folder: str
    ) -> None:
        faulthandler.dump_traceback_later(max(LOADING, engine_timeout), exit=True)
        self._engine = loaded(config, name, template, folder)
        faulthandler.cancel_dump_traceback_later()
        self._limit = StepLimit(engine_timeout)
        self._questions: SimpleQueue[tuple[Json, Future[str]]] = SimpleQueue()
        Thread(target=self._decode, name="dlstep-engine", daemon=True).start()

    def __call__(self, rows: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the answers to the rows as JSON texts of `key`, status, body and `beside`."""
        answers = [Future[str]() for _ in rows["content"]]
        for content, answer in zip(rows["content"], answers, strict=True):
            self._questions.put((json.loads(content), answer))
        return {"place": [int(place) for place in rows["place"]], "answer": [answer.result() for answer in answers]}

    def _decode(self) -> None:
        """Answer requests as they come. End the process if the engine fails, so that Ray starts a new one."""
        numbers, live = count(), dict[int, tuple[str, Future[str]]]()
        try:
            while True:
                while not (live and self._questions.empty()):
                    content, answer = self._questions.get()
                    number, key = next(numbers), content_key(self._engine.facts, content)
                    live[number] = key, answer
                    self._engine.add(number, key, content)
                with self._limit.enforced():
                    answered = self._engine.step()
                for number, *parts in answered:
                    key, answer = live.pop(number)
                    answer.set_result(json.dumps([key, *parts]))
        except BaseException:  # noqa: BLE001 - the boundary of the actor: without an exit, calls would wait forever
            print_exc()
            os._exit(1)
