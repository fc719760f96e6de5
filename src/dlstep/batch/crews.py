"""Who answers: an engine in this process, or actors of Ray (`actors.py`). Who it is changes no byte of an answer."""

from typing import Protocol

from .desk import About, Answered, Desk
from .lines import Json


class Crew(Protocol):
    """Takes requests at any time."""

    @property
    def about(self) -> About:
        """The facts of its engines, and how many requests they take at a time, together."""
        ...

    @property
    def live(self) -> int:
        """Requests without an answer."""
        ...

    def add(self, place: int, key: str, content: Json) -> None:
        """Let a request wait."""
        ...

    def step(self) -> list[Answered]:
        """Some answers, perhaps none."""
        ...

    def close(self) -> None:
        """Give up what is not answered."""
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
        """Let a request wait."""
        self._desk.add(place, key, content)
        self.live += 1

    def step(self) -> list[Answered]:
        """The answers that a forward ended."""
        ended = self._desk.step()
        self.live -= len(ended)
        return ended

    def close(self) -> None:
        """Nothing is left behind."""
