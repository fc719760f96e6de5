"""A ticket is one answer as the HTTP process knows it, from its arrival to its end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ..core.ledger import Ending
from .messages import News, Submit

Fault = Literal["", "queue_timeout", "engine_died", "engine_error"]


@dataclass(eq=False, slots=True)
class Ticket:
    """One answer under way. `changed` is called after every change; `arrived`, `sent`, `first` and `ended` are times.

    `fault` says what went wrong, if nothing of the answer is worth having; `error` says it in words.
    """

    submit: Submit
    owner: str
    arrived: float
    changed: Callable[[], None]
    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    cells: tuple[tuple[int | None, float], ...] = ()
    steps: int = 0
    nfe: int = 0
    cached: int = 0
    sent: float | None = None
    first: float | None = None
    ended: float | None = None
    ending: Ending | None = None
    fault: Fault = ""

    @property
    def id(self) -> int:
        """The number of the request in the engine."""
        return self.submit.id

    @property
    def error(self) -> str:
        """Why the answer failed or was broken off; empty otherwise."""
        return self.ending.error if self.ending else ""

    @property
    def tokens_per_forward(self) -> float:
        """Emitted tokens / forwards; 0 before the first."""
        return len(self.tokens) / self.nfe if self.nfe else 0.0

    def take(self, news: News, now: float) -> None:
        """Take in what a step changed."""
        self.tokens += news.tokens
        self.probabilities += news.probabilities
        self.cells, self.steps, self.nfe, self.cached = news.cells, news.steps, news.nfe, news.cached
        if news.tokens and self.first is None:
            self.first = now
        if news.ending is not None:
            self.end(news.ending, now, "engine_error" if news.ending.reason in ("error", "rejected") else "")
            return
        self.changed()

    def end(self, ending: Ending, now: float, fault: Fault = "") -> None:
        """End it; nothing comes after that."""
        self.ending, self.ended, self.fault, self.cells = ending, now, fault, ()
        self.changed()
