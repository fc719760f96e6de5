"""Pending requests: the state of each answer in the HTTP process, from arrival to end, and the head of its response."""

import time
from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Optional
from uuid import uuid4

from ...core import Request, SequenceState
from ...core.sequence import Best, FinishInfo
from ...views.frames import Frame
from ..messages import EMPTY_WINDOW, News, Submit, Window
from ..shapes import ForkOrigin

Kind = Literal["completion", "chat", "read"]
PREFIXES: dict[Kind, str] = {"completion": "cmpl-", "chat": "chatcmpl-", "read": "read-"}


@dataclass(frozen=True, slots=True)
class Head:
    """The fields that all parts of one response share."""

    kind: Kind
    model: str
    logprobs: bool
    by_id: bool = False  # whether log probabilities name tokens by their ids
    token_ids: bool = False  # whether the response contains the ids of prompt and answer
    name: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))
    origin: ForkOrigin | None = None  # of a fork: where it starts
    call: str | None = None  # the function that answers call; "" if each answer names it, None if they call none
    functions: tuple[str, ...] = ()  # those that the model may decide to call, in the format of its chat template
    parallel: bool = True  # whether an answer may have several calls
    prefix: str = ""  # of the id; empty: that of the kind

    @property
    def id(self) -> str:
        """The id of the response."""
        return (self.prefix or PREFIXES[self.kind]) + self.name

    def of_fork(self, origin: ForkOrigin) -> "Head":
        """Return the head of a fork of this response, whose answer has the same form, such as a function call."""
        return replace(self, name=uuid4().hex, prefix="", created=int(time.time()), origin=origin)


Fault = Literal["", "queue_timeout", "engine_died", "engine_timeout", "engine_error", "not_ready"]


@dataclass(eq=False, slots=True)
class PendingRequest:
    """One answer. `changed` is called after every change.

    `arrived`, `sent`, `first` (token) and `ended` are times of the event loop in seconds. `fault` is
    the kind of failure if the answer is unusable; `error` is the message.
    """

    submit: Submit
    owner: str
    arrived: float
    changed: Callable[[], None]
    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    best: list[Best] = field(default_factory=list)
    step_map: dict[str, object] | None = None
    window: Window = EMPTY_WINDOW
    steps: int = 0
    nfe: int = 0
    cached: int = 0
    sent: float | None = None
    first: float | None = None
    ended: float | None = None
    finish_info: FinishInfo | None = None
    fault: Fault = ""
    # With steps: the initial sequence, its frames, and the arrival time of each frame.
    opening: SequenceState | None = None
    frames: list[Frame] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    size: int = 0  # positions in all frames
    whole: bool = False  # the client gets nothing before the end
    replica: int | None = None  # the replica that it was last sent to
    restarted: bool = False
    unwanted: bool = False  # its client has cancelled it or disconnected
    cancelled: str = ""  # the reason to end early; empty if not cancelled
    # Until it ends: the keys of its prompt's pages, and the timers that end it.
    keys: tuple[bytes, ...] = ()
    queue_timer: TimerHandle | None = None
    timers: list[TimerHandle] = field(default_factory=list)
    # For forks: the replica whose engine keeps the steps of this answer, the answer that this one
    # forks (while it waits), and the number of waiting forks of this answer.
    keeper: int | None = None
    parent: Optional["PendingRequest"] = None
    forks: int = 0

    @property
    def request(self) -> Request:
        """The request as it is sent to the engine."""
        return self.submit.request

    @property
    def id(self) -> int:
        """The id of the request in the engine."""
        return self.request.id

    @property
    def error(self) -> str:
        """Why the answer failed or was aborted; empty otherwise."""
        return self.finish_info.error if self.finish_info else ""

    @property
    def tokens_per_forward(self) -> float:
        """Emitted tokens per forward pass; 0 before the first."""
        return len(self.tokens) / self.nfe if self.nfe else 0.0

    def apply(self, news: News, now: float) -> None:
        """Apply the changes of a step."""
        self._append(news)
        for frame in news.frames:
            self.append_frame(frame, now)
        self.window, self.steps, self.nfe, self.cached = news.window, news.steps, news.nfe, news.cached
        self.step_map = news.step_map
        if news.tokens and self.first is None:
            self.first = now
        if news.finish_info is not None:
            reason = news.finish_info.reason
            failed = reason == "error" or (reason == "rejected" and not self.submit.may_be_cut)
            self.end(news.finish_info, now, "engine_error" if failed else "")
            return
        self.changed()

    @property
    def can_restart(self) -> bool:
        """Whether another engine may restart the request.

        Its client must have received nothing, and it must be no fork and record no steps. A request is
        restarted only once, because it may itself have killed the engine.
        """
        has_sent = bool(self.nfe) and not self.whole
        return not (has_sent or self.restarted or self.submit.steps or self.submit.origin is not None)

    def restart(self) -> None:
        """Discard the partial answer of a dead engine, to restart on another one."""
        self.tokens.clear()
        self.probabilities.clear()
        self.best.clear()
        self.window, self.steps, self.nfe, self.cached = EMPTY_WINDOW, 0, 0, 0
        self.sent, self.restarted = None, True

    def release(self) -> None:
        """Cancel the timers and release what only a running answer needs."""
        for timer in self.timers if self.queue_timer is None else (self.queue_timer, *self.timers):
            timer.cancel()
        self.keys, self.queue_timer, self.timers, self.parent = (), None, [], None

    def _append(self, new: News | Frame) -> None:
        self.tokens += new.tokens
        self.probabilities += new.probabilities
        self.best += new.best

    def open(self, opening: SequenceState, frame: Frame) -> None:
        """Begin recording steps, with the frame before the first forward pass."""
        self.opening = opening
        self.append_frame(frame, self.arrived)

    def append_frame(self, frame: Frame, now: float) -> None:
        """Append a frame."""
        self._append(frame)
        self.frames.append(frame)
        self.size += frame.size
        self.times.append(now - self.arrived)

    def end(self, finish_info: FinishInfo, now: float, fault: Fault = "") -> None:
        """End the answer. No changes may follow. An abort before the first forward pass is a fault, unless by the client."""
        if finish_info.reason == "abort" and not (self.nfe or fault or self.unwanted):
            fault = "not_ready"
        self.finish_info, self.ended, self.fault, self.window = finish_info, now, fault, EMPTY_WINDOW
        if self.frames and self.frames[-1].finish_info is None:  # not ended by the engine
            last = self.frames[-1]
            frame = Frame(last.seq + 1, last.steps, last.nfe, last.settled, (), (), finish_info=finish_info)
            self.append_frame(frame, now)
        self.changed()
