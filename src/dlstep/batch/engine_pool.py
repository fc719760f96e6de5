"""Pools of engines that answer requests: an engine in this process, or Ray actors."""

from typing import Protocol

from .engine import AnsweredRequest, BatchEngine, BatchEngineInfo
from .lines import Json


class BatchEnginePool(Protocol):
    """One or more engines that accept requests at any time. All pools give identical answers."""

    @property
    def about(self) -> BatchEngineInfo:
        """The facts of the engines, and the number of requests that they decode concurrently."""
        ...

    @property
    def live(self) -> int:
        """The number of requests without an answer."""
        ...

    def add(self, place: int, key: str, content: Json) -> None:
        """Queue a request."""
        ...

    def step(self) -> list[AnsweredRequest]:
        """Return new answers, possibly none."""
        ...

    def close(self) -> None:
        """Abandon unanswered requests and release resources."""
        ...


class LocalBatchEngine:
    """An engine in this process."""

    def __init__(self, engine: BatchEngine) -> None:
        self._engine, self.live = engine, 0

    @property
    def about(self) -> BatchEngineInfo:
        """The facts of the engine."""
        return self._engine.about

    def add(self, place: int, key: str, content: Json) -> None:
        """Queue a request."""
        self._engine.add(place, key, content)
        self.live += 1

    def step(self) -> list[AnsweredRequest]:
        """Run one forward pass. Return the answers that it completed."""
        ended = self._engine.step()
        self.live -= len(ended)
        return ended

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
