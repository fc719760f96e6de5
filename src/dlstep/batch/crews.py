"""Crews, which answer requests: an engine in this process, or Ray actors (`actors.py`)."""

from typing import Protocol

from .desk import About, Answered, Desk
from .lines import Json


class Crew(Protocol):
    """An engine, or several, that accept requests at any time. All crews give identical answers."""

    @property
    def about(self) -> About:
        """The facts of the engines, and the number of requests that they decode concurrently."""
        ...

    @property
    def live(self) -> int:
        """The number of requests without an answer."""
        ...

    def add(self, place: int, key: str, content: Json) -> None:
        """Queue a request."""
        ...

    def step(self) -> list[Answered]:
        """Return new answers, possibly none."""
        ...

    def close(self) -> None:
        """Abandon unanswered requests and release resources."""
        ...


class Alone:
    """An engine in this process."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self.live = desk, 0

    @property
    def about(self) -> About:
        """The facts of the engine."""
        return self._desk.about

    def add(self, place: int, key: str, content: Json) -> None:
        """Queue a request."""
        self._desk.add(place, key, content)
        self.live += 1

    def step(self) -> list[Answered]:
        """Run one forward pass. Return the answers that it completed."""
        ended = self._desk.step()
        self.live -= len(ended)
        return ended

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
