"""Start, watch and end the processes of all ranks except rank 0."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from ..core import DlstepError
from ..processes import HEARTBEAT_SECONDS, Clock, Heart, Pulse, Worker, last_words
from . import RankLost
from .control_channel import AGAIN, silent
from .ranks import TIMEOUT, Ranks, break_off, join_ranks, leave_ranks

START = 600.0  # seconds for all ranks to import their modules and read the checkpoint's description
GRACE = 2.0  # seconds to wait for the reason why an exchange with a rank failed
ARRIVED, REFUSED = "arrived", "refused"  # messages of ranks; `REFUSED` means that a restart would not help


@dataclass(frozen=True, slots=True)
class RankInfo:
    """The rank of a process, the `size` of its group, and the rendezvous file (None: torchrun).

    `notify` informs rank 0 that this rank is about to join.
    """

    rank: int
    size: int
    meeting: Path | None
    notify: Callable[[], None] = lambda: None

    def join(self, timeout: float) -> Ranks:
        """Notify rank 0, then join the other ranks with `join_ranks`."""
        self.notify()
        return join_ranks(self.rank, self.size, self.meeting, timeout)


def torchrun_rank_info(size: int) -> RankInfo | None:
    """Return the rank that torchrun gave this process; None if torchrun did not start it.

    Raises ValueError if torchrun started a number of processes other than `size`.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    world = int(os.environ["WORLD_SIZE"])
    if world != size:
        raise ValueError(f"tensor_parallel_size={size}, but torchrun started {world} processes: give the same number")
    return RankInfo(int(os.environ["RANK"]), size, None)


class Member(Pulse):
    """Rank 0's record of another rank: its process and the messages that it sent."""

    def __init__(self, rank: int, size: int, meeting: Path, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        super().__init__(Worker(_run, rank, size, meeting, target, arguments, name=f"rank {rank} of {size}"))
        self.messages: set[str] = set()

    def fault(self, passed: float, timeout: float) -> DlstepError | None:
        """Return an error if the rank ended or was silent for `timeout` seconds, else None.

        `passed` is the time in seconds since the last call.
        """
        alive = self.worker.alive  # read before the messages, so that its last ones are not missed
        self.messages.update(self.take(passed))
        if not alive:
            kind = DlstepError if REFUSED in self.messages else RankLost
            return kind(f"{self.worker.reason}; {AGAIN}")
        return silent(self.worker.name, self.silence.seconds) if self.silence.longer(timeout) else None


class WorkerGroup:
    """Rank 0's view of the ranks. `lost` is the reason why the group has ended, or None."""

    def __init__(self, ranks: Ranks, members: Sequence[Member] = (), folder: Path | None = None) -> None:
        self.ranks = ranks
        self.lost: str | None = None
        self._error: DlstepError | None = None
        self._members, self._folder = tuple(members), folder
        self._changed = threading.Condition()  # notified when a rank arrives or the group ends
        self._ending = threading.Event()
        self._working: float | None = None  # seconds that the current forward pass has taken so far
        self._calls: list[Callable[[str], None]] = []
        self._drops: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._watch, name="dlstep-ranks", daemon=True)
        if ranks.several and ranks.rank == 0:
            self._thread.start()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of ranks 1 and above, if this process started them."""
        return tuple([member.worker.pid for member in self._members])

    def meet(self) -> None:
        """Wait until all ranks arrive, then join them. Raises DlstepError if one does not."""
        with self._changed:
            self._changed.wait_for(lambda: self.lost is not None or self._complete, START)
        if self.lost is None and not self._complete:
            late = next(member for member in self._members if ARRIVED not in member.messages)
            self._lose(RankLost(f"{late.worker.name} was not ready to join after {START:g} seconds; {AGAIN}"))
        self.check()
        assert self._folder is not None, "ranks that were started meet in a file"
        self.ranks = join_ranks(0, self.ranks.size, self._folder / "meeting", self.ranks.timeout)

    @property
    def _complete(self) -> bool:
        return all(ARRIVED in member.messages for member in self._members)

    def check(self) -> None:
        """Raise DlstepError if the group has ended."""
        if self.lost is not None:
            raise type(self._error or DlstepError())(self.lost)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Replace a RuntimeError of the block by the reason of the loss if a rank was lost."""
        try:
            yield
        except RuntimeError:
            if self.ranks.several:
                self._await_end()
                self.check()
            raise

    @contextmanager
    def working(self) -> Iterator[None]:
        """Time the block as a forward pass, so that the watching thread can enforce the timeout."""
        self._working = 0.0
        try:
            yield
        finally:
            self._working = None

    def ended_by(self, error: BaseException) -> DlstepError:
        """End the group after `error` on rank 0; return the error that explains why it ended."""
        if isinstance(error, DlstepError):
            cause = error
        else:  # wait: a lost rank may be the cause
            self._await_end()
            own = str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"
            cause = self._error or DlstepError(f"a forward pass failed on rank 0: {own}")
        self._lose(cause)
        self.end()
        return cause

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Call `call` with the reason when the group fails; immediately if it already has."""
        with self._changed:
            self._calls.append(call)
            lost = self.lost
        if lost is not None:
            call(lost)

    def before_leaving(self, drop: Callable[[], None]) -> None:
        """Call `drop` before rank 0 leaves. It must free graphs that hold NCCL operations."""
        self._drops.append(drop)

    def end(self) -> None:
        """End all other ranks, and leave the group. Safe to call more than once."""
        if self._ending.is_set():
            return
        self._ending.set()
        if self.lost is None:
            self.lost = "the group of ranks was closed: create the LLM again"
        for member in self._members:
            member.worker.end(0)
        if self._members:
            break_off()  # otherwise NCCL would wait for these ranks
        for drop in self._drops:
            drop()
        leave_ranks()
        if self._folder is not None:
            rmtree(self._folder, ignore_errors=True)

    def _await_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.lost is not None, GRACE)

    def _watch(self) -> None:
        """End the group once a rank ends or is silent, or a forward pass exceeds the timeout."""
        clock = Clock()
        while not self._ending.is_set():
            error = self._fault(clock.wait([member.worker for member in self._members]))
            if self._ending.is_set():
                return
            if error is not None:
                self._lose(error)
                return
            with self._changed:
                self._changed.notify_all()

    def _fault(self, passed: float) -> DlstepError | None:
        """Return why the group has to end, or None. `passed` is in seconds since the last call."""
        timeout = self.ranks.timeout
        for member in self._members:
            if (error := member.fault(passed, timeout)) is not None:
                return error
        if (working := self._working) is not None:
            self._working = working + passed
            if working > timeout + 2 * HEARTBEAT_SECONDS:
                return RankLost(
                    f"a forward pass of {self.ranks.size} ranks took longer than {timeout:g} seconds (rank_timeout); {AGAIN}"
                )
        return None

    def _lose(self, error: DlstepError) -> None:
        with self._changed:
            if self.lost is not None:
                return
            self._error, self.lost, calls = error, str(error), list(self._calls)
            self._changed.notify_all()
        for member in self._members:  # so that no thread of rank 0 keeps waiting for a stopped rank
            member.worker.kill()
        break_off()
        for call in calls:
            call(self.lost)


def start_worker_group(size: int, target: Callable[..., None], *arguments: Any, timeout: float = TIMEOUT) -> WorkerGroup:
    """Start ranks 1 to `size` - 1 as processes that run `target(rank_info, *arguments)`; join them.

    Raises DlstepError if a rank ends or stops answering before it joins.
    """
    folder = Path(mkdtemp(prefix="dlstep-ranks-"))
    members: list[Member] = []
    with ExitStack() as undone:
        undone.callback(rmtree, folder, ignore_errors=True)
        for rank in range(1, size):
            members.append(Member(rank, size, folder / "meeting", target, arguments))
            undone.callback(members[-1].worker.kill)
        undone.pop_all()
    group = WorkerGroup(Ranks(0, size, timeout=timeout), members, folder)
    try:
        with group.starting():
            group.meet()
    except BaseException:
        group.end()
        raise
    return group


def _run(
    connection: Connection, rank: int, size: int, meeting: Path, target: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    """Run `target` as the process of a non-zero rank."""
    heart = Heart(connection)
    try:
        target(RankInfo(rank, size, meeting, partial(heart.send, ARRIVED)), *arguments)
    except (ValueError, OSError, DlstepError) as error:
        reason = " ".join(str(error).split())
        last_words(reason)
        print(f"dlstep: rank {rank} of {size} failed: {reason}", file=sys.stderr, flush=True)
        heart.send(REFUSED)
        sys.exit(1)
