"""Run one decode on several ranks: rank 0 holds the requests and sends changes of the state.

Every rank runs the core on these changes, and its shard of the forward pass. Plans are never sent:
before each forward pass the ranks compare cache digests to prove that they agree.
"""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import FrameType
from typing import Any, NamedTuple, Protocol
from weakref import finalize

from ..core import (
    CacheMismatch,
    CachingDriver,
    DlstepError,
    Event,
    Fields,
    PendingSamples,
    Plan,
    Prepared,
    RequestFault,
    Samples,
    State,
    WeightsDriver,
    commit,
    fail,
    prepare,
    schedule,
)
from ..core.lifecycle import apply
from .control_channel import ControlChannel, RanksDisagree, connect
from .ranks import Ranks
from .worker_group import WorkerGroup

SHARED, WEIGHTS = Path("/dev/shm"), "model.safetensors"


@contextmanager
def delayed_interrupt() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block, so that ranks stay in step. A second one raises KeyboardInterrupt at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN, signal.SIG_DFL):
        yield  # Python raises no KeyboardInterrupt here
        return
    waiting: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        del frame
        if waiting:
            raise KeyboardInterrupt
        waiting.append(number)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        signal.raise_signal(signal.SIGINT)


Numbers = tuple[int, ...]  # of decodes


class Forward(NamedTuple):
    """The next forward pass of decode number `decode`, after its `changes` since the last one.

    A state in `changes` replaces the current one. `released` are the numbers of decodes
    whose KV caches are released, `gone` those of decodes that have ended.
    """

    decode: int
    changes: tuple[Event | State, ...]
    released: Numbers
    gone: Numbers


class Change(NamedTuple):
    """A command to change weights or KV caches: a call of a method of the driver."""

    method: str
    arguments: tuple[Any, ...]
    released: Numbers

    def on(self, driver: "RankDriver", channel: ControlChannel) -> Any:
        """Return the result of the method. Raises RanksDisagree if numbers differ between the ranks."""
        result = getattr(driver, self.method)(*self.arguments)
        channel.check(self.method, result if isinstance(result, int) else "done")()
        return result


class End:
    """A command to end: no more commands follow."""


Message = Forward | Change | End


class RankDriver(CachingDriver, WeightsDriver, Protocol):
    """A driver of KV caches that lets ranks compare cache digests before they launch a forward pass."""

    def holds(self, plan: Plan, owner: int) -> bool:
        """Return whether the owner has the KV cache that `plan` continues, or `plan` begins a new one."""
        ...

    def start(self, plan: Plan, owner: int, agree: Callable[[], None]) -> PendingSamples:
        """Launch a plan. Call `agree` just before."""
        ...

    def drop_graphs(self) -> None:
        """Free all captured graphs."""
        ...

    def room(self) -> int:
        """Return how many pages fit into free memory."""
        ...


class RankZeroDriver:
    """The driver of rank 0. An error in a forward pass ends the group: ranks cannot retry alone."""

    def __init__(self, driver: RankDriver, group: WorkerGroup) -> None:
        self._driver, self._group, self._lock = driver, group, Lock()
        self._channel = connect(group.ranks, group.check)
        self._released: deque[int] = deque()
        self._gone: deque[int] = deque()
        group.before_leaving = driver.drop_graphs
        finalize(self, _close, group, self._channel)

    def run(self, plan: Plan) -> Samples:
        """Raise DlstepError: the other ranks cannot know this plan without its state."""
        raise DlstepError(f"step {plan.step}: a plan runs on several ranks through a Decode only")

    def lead(self, state: State, owner: int) -> "DecodeLeader":
        """Return the leader of the decode with this number, which begins with `state`."""
        leader = DecodeLeader(self, state)
        finalize(leader, self._gone.append, owner).atexit = False
        return leader

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Call `call` with the reason once a rank is lost."""
        self._group.when_lost = call

    def fork(self, cache_digest: int, owner: int) -> bool:
        """Copy a KV cache on all ranks. Return whether that succeeded."""
        return self._change("fork", cache_digest, owner)

    def room(self) -> int:
        """Return how many pages fit into the free memory of this rank; the other ranks have about as much."""
        return self._driver.room()

    def release(self, owner: int) -> None:
        """Release the owner's KV cache before the next forward pass."""
        self._released.append(owner)

    @property
    def weights_version(self) -> int:
        """Number of updates of the weights so far."""
        return self._driver.weights_version

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the weights."""
        return self._driver.fingerprint

    def check(self, fingerprint: str | None = None) -> None:
        """Raise DlstepError if no plan can run now, or if the weights do not have the given fingerprint."""
        self._group.check()
        self._driver.check(fingerprint)

    def update(self, source: Path | Fields) -> int:
        """Replace the weights on all ranks. Tensors are passed to the ranks in a file in shared memory."""
        with TemporaryDirectory(prefix="dlstep-", dir=SHARED if SHARED.is_dir() else None) as folder:
            if not isinstance(source, Path):
                from safetensors.torch import save_file

                save_file({name: its.detach().cpu().clone() for name, its in source.items()}, Path(folder, WEIGHTS))
                source = Path(folder)
            return self._change("update", source)

    def sleep(self, level: int) -> tuple[int, int]:
        """Free memory on all ranks. Return the bytes in use on rank 0 before and after."""
        return self._change("sleep", level)

    def wake_up(self) -> tuple[int, int]:
        """Allocate on all ranks what `sleep` freed. Return the bytes in use on rank 0 before and after."""
        return self._change("wake_up")

    def _change(self, method: str, *arguments: Any) -> Any:
        """Call a method of every rank's driver. The group survives ValueError and OSError, which all ranks raise together."""
        with self._lock, delayed_interrupt(), self._whole(ValueError, OSError):
            change = Change(method, arguments, self._forget())
            self._channel.send(change)
            return change.on(self._driver, self._channel)

    def start(self, number: int, changes: tuple[Event | State, ...], plan: Plan) -> PendingSamples:
        """Launch a forward pass of decode `number` on all ranks."""
        with self._lock, delayed_interrupt(), self._whole():
            self._channel.send(Forward(number, changes, self._forget(), _drained(self._gone)))
            return _start(self._driver, self._channel, plan, number)

    def wait(self, pending: PendingSamples) -> Samples:
        """Return the samples of a launched forward pass."""
        with self._lock, delayed_interrupt(), self._whole():
            return pending.wait()

    @contextmanager
    def _whole(self, *shared: type[Exception]) -> Iterator[None]:
        """End the group if the block fails midway, except with the `shared` types of errors, which all ranks raise together.

        Raises DlstepError if the group has already ended.
        """
        self._group.check()
        try:
            with self._group.working():
                yield
        except (CacheMismatch, *shared):  # after CacheMismatch, the next plan begins a new KV cache
            raise
        except Exception as error:
            raise self._group.ended_by(error) from error
        except BaseException as error:
            how = "interrupted twice" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
            self._group.ended_by(DlstepError(f"a forward pass of several ranks was {how}: create the LLM again"))
            raise

    def _forget(self) -> Numbers:
        released = _drained(self._released)
        _forget(self._driver, released)
        return released


def _drained(numbers: deque[int]) -> Numbers:
    """Remove and return all numbers. When garbage collection frees a decode, it may append one at any time."""
    return tuple(numbers.popleft() for _ in range(len(numbers)))


def _close(group: WorkerGroup, channel: ControlChannel) -> None:
    """End a group that is no longer used. Ranks started by torchrun exit on receiving End."""
    if group.lost is None and not group.pids:
        with suppress(RuntimeError, DlstepError):  # a lost rank has already ended
            channel.send(End())
    group.end()


class PendingOfRanks(NamedTuple):
    """Samples of a forward pass of all ranks, which end together if it fails."""

    driver: RankZeroDriver
    pending: PendingSamples

    def wait(self) -> Samples:
        """Return the samples once the device has computed them."""
        return self.driver.wait(self.pending)


class DecodeLeader:
    """The leader of one decode. It collects changes until the next forward pass."""

    def __init__(self, driver: RankZeroDriver, state: State) -> None:
        self._driver = driver
        self._changes: list[Event | State] = [state]

    def apply(self, event: Event) -> None:
        """Collect an event, except samples, which all ranks compute."""
        if not isinstance(event, Samples):
            self._changes.append(event)

    def rewind(self, state: State) -> None:
        """Replace all collected changes by a state."""
        self._changes = [state]

    def start(self, plan: Plan, owner: int) -> PendingSamples:
        """Launch a plan of this decode on all ranks."""
        changes, self._changes = tuple(self._changes), []
        return PendingOfRanks(self._driver, self._driver.start(owner, changes, plan))


def _committed(state: State, samples: Samples, prepared: Prepared | None) -> State:
    """Return the state after `samples`; requests whose strategy or rule raises are failed.

    Rank 0 fails the same requests, so its later messages about them change nothing here.
    """
    while True:
        try:
            return commit(state, samples, prepared)
        except RequestFault as fault:
            state = fail(state, fault.request_id, str(fault))


def follow_rank_zero(driver: RankDriver, ranks: Ranks) -> None:
    """Execute rank 0's commands until End. Raises RanksDisagree, or RuntimeError if one is lost."""
    states: dict[int, State] = {}
    planned: tuple[State, Plan] | None = None  # a state and its plan, computed before rank 0's message arrives
    channel = connect(ranks)
    while True:
        message: Message = channel.receive()
        match message:
            case End():
                return
            case Change():
                _forget(driver, message.released)
                with suppress(ValueError, OSError):  # rank 0 raises it, too
                    message.on(driver, channel)
            case Forward(number, changes, released, gone):
                _forget(driver, released)
                for ended in gone:
                    states.pop(ended, None)
                for change in changes:
                    states[number] = change if isinstance(change, State) else apply(states[number], change)
                state = states[number]
                plan = planned[1] if planned is not None and planned[0] is state else schedule(state)
                try:
                    pending = _start(driver, channel, plan, number)
                except CacheMismatch:
                    continue  # rank 0 gets the same error
                prepared = prepare(state, plan)
                states[number] = _committed(state, pending.wait(), prepared)
                planned = _planned(states[number])


def _planned(state: State) -> tuple[State, Plan] | None:
    """Return a state and its plan; None if planning fails for a request. Rank 0 gets the same fault and reports it."""
    try:
        return state, schedule(state)
    except RequestFault:
        return None


def _start(driver: RankDriver, channel: ControlChannel, plan: Plan, owner: int) -> PendingSamples:
    """Launch this rank's share of a forward pass, after the comparison of cache digests.

    Raises CacheMismatch if no rank has the KV cache, and RanksDisagree if only some ranks have it.
    """
    held = driver.holds(plan, owner)
    digest = plan.cache_digest if held else f"no KV cache with digest {plan.cache_digest}"
    check = channel.check(f"step {plan.step}", digest)
    if not held:
        check()  # `start` raises CacheMismatch before it calls this
    try:
        return driver.start(plan, owner, check)
    except CacheMismatch as error:
        if held:  # the other ranks hold the KV cache and continue
            raise RanksDisagree(f"step {plan.step}: rank {channel.ranks.rank} alone lost its KV cache: {error}") from error
        raise


def _forget(driver: RankDriver, owners: Numbers) -> None:
    for owner in owners:
        driver.release(owner)
