"""A ticket is one answer as the HTTP process knows it, from its arrival to its end."""

from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Optional

from ...core import Sequence
from ...core.ledger import Ending
from ...views.frames import Frame
from ..messages import News, Submit

Fault = Literal["", "queue_timeout", "engine_died", "engine_timeout", "engine_error"]


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
    # Where steps are told: the sequence as it came in, its frames, and when each of them was here.
    opening: Sequence | None = None
    frames: list[Frame] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    size: int = 0  # positions of all frames
    whole: bool = False  # nobody reads it before its end
    replica: int | None = None  # whose engine has it, or had it last
    begun_again: bool = False
    cancelled: str = ""  # the reason to end early; empty if not cancelled
    # Until it ends: the keys of the pages of its prompt, and the timers that end it.
    keys: tuple[bytes, ...] = ()
    queue_timer: TimerHandle | None = None
    timers: list[TimerHandle] = field(default_factory=list)
    # Of steps and forks: the replica whose engine keeps its steps, the answer that it begins at
    # (while it waits, if it is a fork), and how many forks of it wait.
    keeper: int | None = None
    parent: Optional["Ticket"] = None
    forks: int = 0

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
        for frame in news.frames:
            self.show(frame, now)
        self.cells, self.steps, self.nfe, self.cached = news.cells, news.steps, news.nfe, news.cached
        if news.tokens and self.first is None:
            self.first = now
        if news.ending is not None:
            self.end(news.ending, now, "engine_error" if news.ending.reason in ("error", "rejected") else "")
            return
        self.changed()

    @property
    def can_begin_again(self) -> bool:
        """Whether nothing was told of it, so that another engine may answer it; once only, for it may be what kills them."""
        told = bool(self.nfe) and not self.whole
        return not (told or self.begun_again or self.submit.steps or self.submit.origin is not None)

    def begin_again(self) -> None:
        """Forget what an engine answered that is gone; it waits for another one."""
        self.tokens.clear()
        self.probabilities.clear()
        self.cells, self.steps, self.nfe, self.cached = (), 0, 0, 0
        self.sent, self.begun_again = None, True

    def release(self) -> None:
        """Give up what only an answer under way needs."""
        for timer in self.timers if self.queue_timer is None else (self.queue_timer, *self.timers):
            timer.cancel()
        self.keys, self.queue_timer, self.timers, self.parent = (), None, [], None

    def open(self, opening: Sequence, frame: Frame) -> None:
        """Begin to tell steps, by the frame before the first forward."""
        self.opening = opening
        self.show(frame, self.arrived)

    def show(self, frame: Frame, now: float) -> None:
        """Take in a frame."""
        self.tokens += frame.tokens
        self.probabilities += frame.probabilities
        self.frames.append(frame)
        self.size += frame.size
        self.times.append(now - self.arrived)

    def end(self, ending: Ending, now: float, fault: Fault = "") -> None:
        """End it; nothing comes after that."""
        self.ending, self.ended, self.fault, self.cells = ending, now, fault, ()
        if self.frames and self.frames[-1].ending is None:  # the engine does not know it, or knows it no more
            last = self.frames[-1]
            self.show(last._replace(seq=last.seq + 1, tokens=(), probabilities=(), packed_cells=b"", packed_chances=b"",
                                    fed=None, ending=ending), now)  # fmt: skip
        self.changed()
