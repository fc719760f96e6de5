"""One `Decode` for many callers and threads: their requests share forwards, and each caller hears of its own."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from threading import Condition, Lock

from .core import Request, SamplingParams, Sequence, State, Update
from .decode import Decode
from .policy import BufferPolicy


class Feed:
    """News of one request. `latest` is the last update; `news` holds all that were not taken yet, unless it is None."""

    def __init__(self, request_id: int, *, keeps: bool) -> None:
        self.id = request_id
        self.latest: Update | None = None
        self.news: deque[Update] | None = deque() if keeps else None

    @property
    def ended(self) -> bool:
        """Whether the last update told of the answer's end."""
        return self.latest is not None and self.latest.ending is not None

    @property
    def sequence(self) -> Sequence:
        """The request as it was last heard of."""
        assert self.latest is not None, "a request that ended was told of"
        return self.latest.sequence

    def push(self, update: Update) -> None:
        """Take in what is new."""
        self.latest = update
        if self.news is not None:
            self.news.append(update)


class SharedDecode:
    """Lets threads add requests to a `Decode` and wait for news of them.

    Whoever waits while nobody runs a forward runs the next one, for all. What the driver raises reaches the thread that ran the
    forward; the others go on with the next one. A `policy` gives options to requests that bring none.
    """

    def __init__(self, decode: Decode, policy: BufferPolicy | None = None) -> None:
        self._decode, self._policy = decode, policy
        self._turn = Condition(Lock())  # not reentrant: a collected stream may abandon its request anywhere
        self._runner: object = None  # of the forward that runs now, if one does
        self._next_id = decode.state.arrivals
        self._feeds: dict[int, Feed] = {}
        self._entering: deque[Request] = deque()
        self._leaving: deque[int] = deque()

    @property
    def state(self) -> State:
        """The state after the last forward, with all that came in since."""
        with self._turn:
            if self._runner is None:
                self._take_in()
        return self._decode.state

    def submit(self, prompt: tuple[int, ...], params: SamplingParams, *, index: int = 0, keeps: bool = False) -> Feed:
        """Let a request wait; the next forward may be its first. Raises ValueError for an empty prompt."""
        with self._turn:
            feed = Feed(self._next_id, keeps=keeps)
            self._entering.append(Request(feed.id, prompt, params, index=index))
            self._feeds[feed.id] = feed
            self._next_id += 1
        return feed

    def abandon(self, request_id: int) -> None:
        """End a request that nobody waits for any more; at once, or before the next forward. Safe in a finalizer."""
        self._leaving.append(request_id)
        if self._turn.acquire(blocking=False):
            try:
                if self._runner is None:
                    self._take_in()
            finally:
                self._turn.release()

    def advance(self, ready: Callable[[], bool]) -> None:
        """Return once `ready`, or after one forward: one that this thread ran, or one that it waited for."""
        me = object()
        updates: tuple[Update, ...] = ()
        try:
            with self._turn:
                if ready():
                    return
                if self._runner is not None:
                    self._turn.wait()
                    return
                self._runner = me
                self._take_in()
            updates = self._decode.step()
        finally:
            # Whatever was raised, and wherever: the others must not wait for this thread.
            if self._runner is me:
                with self._turn:
                    self._runner = None
                    self._turn.notify_all()
                    self._deliver(updates)
                    self._take_in()

    def _deliver(self, updates: tuple[Update, ...]) -> None:
        for update in updates:
            feed = self._feeds.get(update.id)
            if feed is not None:
                feed.push(update)
                if feed.ended:
                    del self._feeds[update.id]

    def _take_in(self) -> None:
        """Requests that came and went since; only while no forward runs."""
        live = len(self._decode.state.live) + len(self._entering)
        while self._entering:
            request = self._entering.popleft()
            if self._policy is not None:
                request = replace(request, params=self._policy.applied(request.params, live))
            self._decode.add(request)
        while self._leaving:
            request_id = self._leaving.popleft()
            self._feeds.pop(request_id, None)
            self._decode.abort(request_id)
        if self._decode.state.done and self._decode.state.ended:
            self._deliver(self._decode.step())  # no forward: those that ended are told of, and forgotten
