"""The loop that runs a model: `Decode`, and `SharedDecode` for the calls, streams and threads of an `LLM`."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pkgutil import resolve_name
from threading import Lock, get_ident
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable
from weakref import finalize, ref

from ..core import (
    EMPTY_CACHE,
    Abort,
    Add,
    Adopt,
    AheadDriver,
    CacheMismatch,
    CachingDriver,
    DlstepError,
    Driver,
    Event,
    Fail,
    Grow,
    Ids,
    OverlappingDriver,
    Plan,
    Prepared,
    Prune,
    Rebuild,
    Request,
    RequestFault,
    Samples,
    SamplesMismatch,
    SamplingParams,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    State,
    Update,
    WeightsDriver,
    commit,
    overlapping,
    plan_ahead,
    prepare,
    schedule,
    updates,
)
from ..core.checks import short
from ..core.contract import request_fault
from ..core.errors import described
from ..core.lifecycle import apply, checked
from ..text.constraints import compiled

Result = TypeVar("Result")
Policy = Callable[[Request, int], Request]
PassKey = tuple[int, int]  # id of a request, number of its pass
SampledSpan = tuple[Span, SpanSamples]


_owners = count(1)  # numbers of decodes, the owners of KV caches


class Leader(OverlappingDriver, Protocol):
    """One decode's driver on rank 0: it forwards state changes, so that all ranks plan alike."""

    def apply(self, event: Event) -> None:
        """Apply `event` on all ranks before their next plan. Samples are computed on each rank."""
        ...

    def rewind(self, state: State) -> None:
        """Make all ranks continue from `state`."""
        ...


@runtime_checkable
class RanksDriver(CachingDriver, Protocol):
    """A driver of several ranks, each of which runs the core. Each decode needs a leader."""

    def lead(self, state: State, owner: int) -> Leader:
        """Return the leader of the decode with this number, which begins with `state`."""
        ...

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Call `call` with the reason, in a separate thread, once a rank is lost."""
        ...


class MemoryUse(NamedTuple):
    """Bytes of memory in use before and after a change."""

    before: int
    """Bytes before: on CUDA, what torch has reserved on the device; otherwise, weights and KV caches. Of rank 0 only."""
    after: int
    """Bytes after, measured in the same way."""


def constrained(request: Request, spec: Spec) -> Request:
    """Return the request with the automaton of its constraint; the same request if it has no constraint.

    Raises ValueError, with the name of the parameter, if the constraint cannot be compiled.
    """
    source = request.params.constraint_source
    if source is None or request.automaton is not None:
        return request
    return replace(request, automaton=compiled(*source, spec))


class Decode:
    """The loop that advances a state with a driver.

    Every change of the state is an event of the core, passed to `record`; applying the events in
    order to the first state yields `state`. Unless `prunes` is False, ended requests are forgotten
    once a step has reported them. If another decode has the KV cache that `state` continues,
    this one gets a copy. Its KV cache is released when it is closed or collected. Not thread-safe.

    Unless `ahead` is False, a driver that can do so starts the next pass before the samples of the current one are known
    (`core.plan_ahead`).
    """

    def __init__(
        self,
        state: State,
        driver: Driver,
        *,
        record: Callable[[Event], None] = lambda event: None,
        prunes: bool = True,
        ahead: bool = True,
    ) -> None:
        self._state = self._reported = state
        self._owner = next(_owners)
        self._leader = driver.lead(state, self._owner) if isinstance(driver, RanksDriver) else None
        self._leader_state = state  # differs from `_state` after a rewind or a lost event
        self._driver, self._record, self._prunes = driver, record, prunes
        self._overlapping = overlapping(self._leader or driver)
        self._weights = driver if isinstance(driver, WeightsDriver) else None
        self._ahead_driver = driver if ahead and isinstance(driver, AheadDriver) else None
        self._ahead = False  # whether a pass ahead was started
        self._forward_failed = False
        if isinstance(driver, CachingDriver):
            finalize(self, driver.release, self._owner).atexit = False
            if state.cache_digest != EMPTY_CACHE:
                driver.fork(state.cache_digest, self._owner)

    @property
    def state(self) -> State:
        """Return the current state."""
        return self._state

    @property
    def weights_version(self) -> int:
        """Return the number of updates of the weights so far."""
        return 0 if self._weights is None else self._weights.weights_version

    def add(self, request: Request) -> None:
        """Queue `request`; one that can never run ends next step.

        Compiles its constraint, unless it was compiled before. Raises ValueError if the id is in use,
        or if the constraint is invalid.
        """
        self._apply(Add(constrained(request, self._state.config.spec)))

    def adopt(self, sequence: SequenceState, request_id: int) -> None:
        """Continue an unfinished sequence of another state under a new id. Raises the errors of `core.adopt`."""
        self._apply(Adopt(sequence, request_id))

    def grow(self, num_pages: int) -> None:
        """Add pages until there are `num_pages`; the KV cache keeps its content."""
        self._apply(Grow(num_pages))

    def abort(self, request_id: int, reason: str = "") -> None:
        """End a request. Do nothing if it has ended."""
        self._apply(Abort(request_id, reason))

    def fail(self, request_id: int, error: str) -> None:
        """End a request with an error. Do nothing if it has ended."""
        self._apply(Fail(request_id, error))

    def step(self) -> tuple[Update, ...]:
        """Run one forward pass, or none if no request is live. Return the updates since the last step.

        If the device no longer holds this state's cache, run as many forward passes as it takes to
        rebuild the cache and advance further than before. If the driver raises, the state stays as
        it was before the forward pass, no request is lost, and the next call rebuilds the cache. A
        request whose strategy or rule fails ends with that error; the others continue. Raises DlstepError
        if the driver's weights cannot be used, or differ from those with which the state began.
        """
        if not self._state.done:
            if self._weights is not None:
                self._weights.check(self._state.config.spec.fingerprint)
            if self._leader is not None and (self._forward_failed or self._leader_state is not self._state):
                self._leader.rewind(self._state)  # other ranks may be ahead, or have missed an event
                self._leader_state = self._state
            lost = self._forward_failed
            if not lost:
                try:
                    self._forward()
                except CacheMismatch:
                    lost = True
            if lost:
                self._catch_up()
        return self.updates()

    def updates(self) -> tuple[Update, ...]:
        """Return each request's change since the last call, ended requests first, and forget requests that have ended."""
        if self._state is self._reported:
            return ()
        changed = updates(self._reported, self._state)
        if self._prunes and self._state.ended:
            self._apply(Prune())
        self._reported = self._state
        return changed

    def rewind(self, state: State) -> None:
        """Continue from `state`, an earlier or a modified one. No event is recorded."""
        self._state = self._reported = state
        self._ahead = False

    def close(self) -> None:
        """Release this decode's KV cache; its next step computes a new one."""
        if isinstance(self._driver, CachingDriver):
            self._driver.release(self._owner)

    def _apply(self, event: Event, prepared: Prepared | None = None) -> None:
        while True:
            try:
                state = commit(self._state, event, prepared) if isinstance(event, Samples) else apply(self._state, event)
                break
            except RequestFault as fault:
                self._end(fault)
        follows = self._leader_state is self._state
        self._state = state
        if self._leader is not None and follows:  # otherwise `step` sends it the whole state
            self._leader.apply(event)
            self._leader_state = state
        self._record(event)

    def _end(self, fault: RequestFault) -> None:
        """End the request whose strategy or rule has failed in a core function, so that the function can be called again.

        Calling it again is safe because it is pure, and each repetition ends one request.
        """
        self._apply(Fail(fault.request_id, str(fault)))

    def _plan(self) -> Plan | None:
        while not self._state.done:
            try:
                return schedule(self._state, ahead=self._ahead)
            except RequestFault as fault:
                self._end(fault)
        return None

    def _forward(self) -> None:
        plan = self._plan()
        if plan is None:
            return  # all remaining requests failed during planning
        self._forward_failed = True  # until `_apply`, the device may be ahead of the state
        try:
            pending = self._overlapping.start(plan, self._owner)
            prepared = prepare(self._state, plan)
            self._ahead = self._starts_ahead(prepared)
            samples = pending.wait()
        except CacheMismatch:
            self._forward_failed = False
            raise
        if type(samples) is not Samples or (samples.plan is not plan and samples.plan != plan):
            raise SamplesMismatch(f"the driver returned {short(samples)} instead of the Samples of its plan")
        self._apply(samples, prepared)
        self._forward_failed = False

    def _starts_ahead(self, prepared: Prepared | None) -> bool:
        """Start the next pass if it is known and need not admit a waiting request. Return whether it was started."""
        if self._ahead_driver is None or prepared is None:
            return False
        if prepared.waiting and len(prepared.running) < self._state.config.max_num_reqs:
            return False
        try:
            ahead = plan_ahead(prepared)
        except RequestFault as fault:
            self._end(fault)
            return False
        return ahead is not None and self._ahead_driver.start_ahead(ahead)

    def _catch_up(self) -> None:
        """Rebuild the cache and run until the running requests have advanced further than before.

        One forward pass might only restore the cache: two states could evict each other forever.
        """
        running = [sequence.request.seq_id for sequence in self._state.running]
        before, self._ahead = self._passes_left(running), False
        self._apply(Rebuild())
        self._forward()
        while running and not self._state.done:  # else nothing was lost, or no request is left
            if self._passes_left(running) < before:
                return  # some request has advanced
            self._forward()

    def _passes_left(self, seq_ids: list[int]) -> int:
        """Return an upper bound on the sampling forward passes left, by the strategies' `measure`."""
        total = 0
        for seq_id in seq_ids:
            sequence = self._state.sequence(seq_id)
            if sequence is None:
                continue
            try:
                total += sequence.request.strategy.measure(sequence)
            except BaseException as error:  # noqa: BLE001 - user code may raise anything
                self._end(request_fault(sequence, self._state.step, error))
        return total


def sampled_passes(first: State, driver: Driver, requests: Iterable[Request]) -> tuple[dict[PassKey, SampledSpan], int]:
    """Run requests to their ends, with twice as many live ones as fit a batch.

    Return the passes that sampled each request, by its id and the number of the pass, and the number of forward passes.
    Raises DlstepError for a request that is rejected or fails.
    """
    found: dict[PassKey, SampledSpan] = {}

    def record(event: Event) -> None:
        for span, rows in zip(event.plan.spans, event.spans, strict=True) if isinstance(event, Samples) else ():
            if span.wanted.sampled and (sequence := decode.state.find(span.who.id)) is not None:
                found[span.who.id, sequence.steps - 1] = span, rows

    decode = Decode(first, driver, record=record)
    waiting, live = iter(requests), 0
    try:
        while True:
            for request in islice(waiting, max(0, 2 * first.config.max_num_reqs - live)):
                decode.add(request)
                live += 1
            if not live:
                return found, decode.state.step
            for update in decode.step():
                if update.finish_info is not None:
                    live -= 1
                    if update.finish_info.reason in ("rejected", "error"):
                        prompt = short(update.sequence.request.prompt)
                        raise DlstepError(f"no likelihood can be computed after prompt {prompt}: {update.finish_info.error}")
    finally:
        decode.close()


class Turn:
    """A fair lock for the forward passes of a driver: threads get it in the order in which they ask for it.

    With a bare lock, the thread that has just released it would nearly always get it again.
    Therefore each call holds a lock that the next call waits for. All locks are held by `with`
    statements: CPython runs no signal handler between acquiring such a lock and entering the block,
    so an interrupt cannot leave it locked.
    """

    def __init__(self) -> None:
        self._running, self._latest, self._thread, self._process = Lock(), Lock(), 0, os.getpid()

    @property
    def taken(self) -> bool:
        """Return whether a forward pass is running."""
        return self._running.locked()

    def run(self, call: Callable[[], Result]) -> Result:
        """Wait for all earlier calls, then return the result of `call`.

        Raises RuntimeError for a call within a call, and DlstepError in a child of `os.fork` if a call was running during the
        fork: the thread that would release the lock does not exist in the child.
        """
        if self._process != os.getpid():
            if self.taken or self._latest.locked():
                raise DlstepError(
                    "this process was forked while another thread ran a forward pass, so its copy of the LLM cannot be used: "
                    "create an LLM in this process, or start processes with multiprocessing's spawn method"
                )
            self._process = os.getpid()
        if self.taken and self._thread == get_ident():
            raise RuntimeError("a forward pass of the same LLM is running in this thread: use another LLM in it")
        mine = Lock()
        with mine:
            earlier, self._latest = self._latest, mine
            # If `earlier` was interrupted while it waited, a call before it may still be running.
            with earlier, self._running:
                try:
                    self._thread = get_ident()
                    return call()
                finally:
                    self._thread = 0


class Subscription:
    """The updates of one request. The request is aborted once this is `closed` or garbage-collected.

    Args:
        request_id: The id of the request.
        keeps: Whether `updates` keeps all unread updates, or only the last one.
    """

    def __init__(self, request_id: int, *, keeps: bool) -> None:
        self.id, self.closed = request_id, False
        self.weights_version = 0  # of the weights that decode the request
        self.error = ""  # what ended all requests of the LLM
        self.updates: deque[Update] = deque(maxlen=None if keeps else 1)
        self.latest: Update | None = None

    @property
    def ended(self) -> bool:
        """Return whether an update has reported the end of the answer."""
        return self.latest is not None and self.latest.finish_info is not None

    @property
    def sequence(self) -> SequenceState:
        """Return the sequence of the last update."""
        assert self.latest is not None, "an ended request has an update"
        return self.latest.sequence

    def push(self, update: Update) -> None:
        """Append an update."""
        self.latest = update
        self.updates.append(update)


class SharedDecode:
    """A `Decode` for all calls, streams and threads of an `LLM`.

    A thread that waits for an update runs the next forward pass itself, for the requests of all.
    Whatever is raised in a pass, such as KeyboardInterrupt or an error of the device, ends all these
    requests, and the next call begins with an empty state. Nothing has to be cleaned up at the
    moment of the interrupt. A `policy` adds options to a request, chosen by the number of live requests.
    """

    def __init__(self, decode: Decode, turn: Turn, policy: Policy | None = None) -> None:
        self.decode, self._turn, self._policy = decode, turn, policy
        self._first, self._ids = decode.state, count()
        self._entering: deque[tuple[Request, ref[Subscription]]] = deque()
        # Only the thread that has the turn uses these two attributes.
        self._callers: dict[int, ref[Subscription]] = {}  # by request id
        self._failure = ""  # why the last pass failed, else empty; "KeyboardInterrupt" while a pass is running
        self._changing, self._held = Lock(), False  # `_held`: new requests wait for a change of the engine

    @property
    def state(self) -> State:
        """Return the state after the last forward pass. If no pass is running, first add and abort requests."""
        if not self._turn.taken:
            self._turn.run(partial(self._run_pass, None))
        return self.decode.state

    def submit(self, prompt: Ids, params: SamplingParams, *, index: int = 0, keeps: bool = False) -> Subscription:
        """Queue a request for the next forward pass. Raises ValueError for an empty prompt or an invalid constraint."""
        subscription = Subscription(next(self._ids), keeps=keeps)
        request = constrained(Request(subscription.id, prompt, params, index=index), self._first.config.spec)
        if request.automaton is not None:  # slow, so compute it here, where no other caller has to wait
            added, _ = checked(self._first.config, self._first.strategy, request)
            # Resolved by name, because other users of this module may lack torch.
            resolve_name("dlstep.driver.tables:prepare_constraint")(added.constraint)
        self._entering.append((request, ref(subscription)))
        return subscription

    def next_update(self, subscription: Subscription) -> Update | None:
        """Return the next unread update, running forward passes until there is one; None after the last update.

        Raises DlstepError if a forward pass of another call failed and ended the request.
        """
        while not subscription.updates:
            if subscription.closed or subscription.ended:
                return None
            if subscription.error:
                raise DlstepError(subscription.error)
            self._turn.run(partial(self._run_pass, subscription))
        return subscription.updates.popleft()

    def change(self, call: Callable[[], State]) -> None:
        """Finish the requests that have begun, then continue from the state that `call` returns; later requests wait."""
        with self._changing:
            self._held = True
            try:
                while not self._turn.run(partial(self._changed, call)):
                    pass
            finally:
                self._held = False

    def _changed(self, call: Callable[[], State]) -> bool:
        """Run a forward pass if a request is live; otherwise, run `call`. Return whether `call` ran."""
        self._run_pass(None, always=True)
        if not self.decode.state.done:
            return False
        self._first = call()
        self.decode.rewind(self._first)
        return True

    def _run_pass(self, subscription: Subscription | None, *, always: bool = False) -> None:
        """Add and abort requests, then run a forward pass if `subscription` still waits for an update, or `always`."""
        if self._failure:
            self._restart()
        self._failure = "KeyboardInterrupt"  # if not even the handler below is reached
        try:
            self._settle()
            waits = subscription is not None and not (subscription.updates or subscription.closed or subscription.error)
            if waits or always:
                self._deliver(self.decode.step())
        except BaseException as error:
            self._failure = described(error)
            raise
        self._failure = ""

    def _restart(self) -> None:
        """Begin with an empty state, after telling each caller."""
        for caller in self._callers.values():
            if (subscription := caller()) is not None:
                subscription.error = f"a forward pass failed and ended all requests of this LLM ({self._failure}): try again"
        self._callers.clear()
        self.decode.rewind(self._first)

    def _settle(self) -> None:
        """Add the new requests, and abort those whose caller has left."""
        live = len(self.decode.state.live) + len(self._entering)
        while self._entering and not self._held:
            request, caller = self._entering[0]
            self._callers[request.id] = caller  # before it leaves the queue, so that `_restart` finds it
            self._entering.popleft()
            if (subscription := caller()) is not None:
                subscription.weights_version = self.decode.weights_version
            self.decode.add(request if self._policy is None else self._policy(request, live))
        for request_id, caller in list(self._callers.items()):
            subscription = caller()
            if subscription is None or subscription.closed or subscription.error:
                self.decode.abort(request_id)
                del self._callers[request_id]
        self._deliver(self.decode.updates())

    def _deliver(self, changed: tuple[Update, ...]) -> None:
        for update in changed:
            subscription = self._callers[update.id]() if update.id in self._callers else None
            if subscription is not None:
                subscription.push(update)
            if update.finish_info is not None:
                self._callers.pop(update.id, None)
