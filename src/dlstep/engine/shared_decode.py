"""One `Decode` for many callers and threads: requests share forward passes, and each caller gets its own updates.

KeyboardInterrupt may be raised between any two bytecodes of this module. Three rules ensure that it
never loses a request, an update or the lock:

- An item leaves its queue after it was handled, and handling it twice equals handling it once,
  so the next call completes what an interrupted call began.
- The lock is free when the call that holds it ends (`engine/call_lock.py`).
- A request lives as long as its subscription. When that is collected, a weak reference queues the
  request for abortion. That callback is C code (`deque.append`), so it cannot be interrupted.
"""

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from weakref import ref

from ..core import Request, SamplingParams, SequenceState, State, Update
from .call_lock import CallLock, Hold
from .config import BufferPolicy
from .decode import Decode


class Subscription:
    """Updates of one request. When the subscription is garbage-collected, the request is aborted.

    Args:
        request_id: The id of the request.
        keeps: Whether `updates` keeps all updates until the reader removes them, or the latest.
            The reader must leave the latest update in place.
    """

    def __init__(self, request_id: int, *, keeps: bool) -> None:
        self.id = request_id
        self.updates: deque[Update] = deque(maxlen=None if keeps else 1)
        self.error: Exception | None = None  # what prevented the request from being added

    @property
    def latest(self) -> Update | None:
        """Return the last update, or None before the first."""
        return self.updates[-1] if self.updates else None

    @property
    def ended(self) -> bool:
        """Return whether the last update reported the end of the answer."""
        return self.latest is not None and self.latest.finish_info is not None

    @property
    def sequence(self) -> SequenceState:
        """Return the sequence of the last update."""
        assert self.latest is not None, "an ended request has an update"
        return self.latest.sequence

    def push(self, update: Update) -> None:
        """Append an update, unless it was appended before."""
        if self.latest is None or self.latest.sequence is not update.sequence:
            self.updates.append(update)


class SubscriptionReference(ref[Subscription]):
    """A weak reference to the subscription of `request`; None until the request is complete."""

    request: Request | None = None


class SharedDecode:
    """A `Decode` that several threads share: they add requests and wait for their updates.

    While no other thread runs a forward pass, a waiting thread runs the next one, for all requests.
    An error of the driver is raised in that thread; other threads continue with the next forward
    pass. A `policy` sets options of requests that have none.
    """

    def __init__(self, decode: Decode, policy: BufferPolicy | None = None) -> None:
        self._decode, self._policy = decode, policy
        self._lock = CallLock()  # only the call that holds it may use `_decode`
        self._ids = count(decode.state.next_seq_id)
        self._references: dict[int, SubscriptionReference] = {}  # of requests whose updates a caller waits for
        self._entering: deque[SubscriptionReference] = deque()
        self._leaving: deque[SubscriptionReference] = deque()

    @property
    def state(self) -> State:
        """Return the state after the last forward pass and all requests added or aborted since."""
        self._try_settle()
        return self._decode.state

    def submit(self, prompt: tuple[int, ...], params: SamplingParams, *, index: int = 0, keeps: bool = False) -> Subscription:
        """Queue a request for the next forward pass. Raises ValueError for an empty prompt."""
        subscription = Subscription(next(self._ids), keeps=keeps)
        reference = SubscriptionReference(subscription, self._leaving.append)
        reference.request = Request(subscription.id, prompt, params, index=index)
        self._references[subscription.id] = reference
        self._entering.append(reference)
        return subscription

    def abandon(self, subscription: Subscription) -> None:
        """Abort a request whose caller stopped waiting, before the next forward pass."""
        if (reference := self._references.get(subscription.id)) is not None:
            self._leaving.append(reference)
            self._try_settle()

    def advance(self, subscription: Subscription, ready: Callable[[], bool]) -> None:
        """Return once `ready`, or after one forward pass, run by this thread or by another.

        Raises `subscription.error` if the request could not be added, and RuntimeError if this
        thread is already inside a forward pass, which would wait for itself.
        """
        if subscription.error is not None:
            raise subscription.error
        mine = Hold(sys._getframe())
        if (other := self._lock.acquire(mine)) is not None:
            if other.is_own():
                raise RuntimeError("generate was called during a forward pass of the same LLM: use another LLM there")
            other.wait()
            return
        try:
            self._settle()
            if subscription.error is None and not ready():
                assert not self._decode.state.done, f"request {subscription.id} is waited for, but was lost"
                self._decode.forward()
                self._settle()
        finally:
            mine.release()

    def _try_settle(self) -> None:
        """Settle, unless another call holds the lock: it settles before its next forward pass."""
        mine = Hold(sys._getframe())
        if self._lock.acquire(mine) is None:
            try:
                self._settle()
            finally:
                mine.release()

    def _settle(self) -> None:
        """Add requests, deliver updates, abort. The next call completes an interrupted one."""
        live = len(self._decode.state.live) + len(self._entering)
        while self._entering:
            self._enter(self._entering[0], live)
            self._entering.popleft()
        self._deliver()
        while self._leaving:
            if (request := self._leaving[0].request) is not None:
                self._references.pop(request.id, None)
                self._decode.abort(request.id)
            self._leaving.popleft()
        self._deliver()

    def _enter(self, reference: SubscriptionReference, live: int) -> None:
        request = reference.request
        if request is None or request.id not in self._references:
            return  # abandoned before it was added
        if self._decode.state.find(request.id) is not None:
            return  # an interrupted call added it; ended requests are forgotten only after all new ones are added
        try:
            if self._policy is not None:
                request = replace(request, params=self._policy.applied(request.params, live))
            self._decode.add(request)
        except Exception as error:  # noqa: BLE001 - `advance` raises it for the caller
            if (subscription := reference()) is not None:
                subscription.error = error
            self._leaving.append(reference)

    def _deliver(self) -> None:
        for update in self._decode.updates():
            reference = self._references.get(update.id)
            subscription = None if reference is None else reference()
            if subscription is not None:
                subscription.push(update)
            if update.finish_info is not None:
                self._references.pop(update.id, None)
        self._decode.acknowledge()
