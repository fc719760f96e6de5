"""Start, watch and end the processes of all ranks except rank 0."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, NamedTuple

from ..core import DlstepError
from ..processes import HEARTBEAT_SECONDS, Heart, Worker, last_words, watch
from . import RankLost
from .control_channel import AGAIN, silent
from .ranks import TIMEOUT, Ranks, break_off, join_ranks, leave_ranks

START = 600.0  # seconds for all ranks to import their modules and read the checkpoint's description
GRACE = 2.0  # seconds to wait for the reason why an exchange with a rank failed
ARRIVED, REFUSED = "arrived", "refused"  # messages of ranks; `REFUSED` means that a restart would not help


class RankInfo(NamedTuple):
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


class WorkerGroup:
    """Rank 0's view of the ranks. `lost` is the reason why the group has ended, or None."""

    def __init__(self, ranks: Ranks, workers: Sequence[Worker] = (), folder: Path | None = None) -> None:
        self.ranks = ranks
        self.lost: str | None = None
        self._error: DlstepError | None = None
        self._workers, self._folder = tuple(workers), folder
        self._changed = threading.Condition()  # notified when a rank arrives or the group ends
        self._ending = threading.Event()
        self._working: float | None = None  # seconds that the current forward pass has taken so far
        self.when_lost: Callable[[str], None] = lambda reason: None
        """Called with the reason when the group fails."""
        self.before_leaving: Callable[[], None] = lambda: None
        """Called before rank 0 leaves, to free graphs that hold NCCL operations."""
        self._thread = threading.Thread(target=self._watch, name="dlstep-ranks", daemon=True)
        if ranks.several and ranks.rank == 0:
            self._thread.start()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of ranks 1 and above, if this process started them."""
        return tuple(worker.pid for worker in self._workers)

    def meet(self) -> None:
        """Wait until all ranks arrive, then join them. Raises DlstepError if one does not."""
        with self._changed:
            self._changed.wait_for(lambda: self.lost is not None or self._complete, START)
        if self.lost is None and not self._complete:
            late = next(worker for worker in self._workers if ARRIVED not in worker.inbox)
            self._lose(RankLost(f"{late.name} was not ready to join after {START:g} seconds; {AGAIN}"))
        self.check()
        assert self._folder is not None, "ranks that were started meet in a file"
        self.ranks = join_ranks(0, self.ranks.size, self._folder / "meeting", self.ranks.timeout)

    @property
    def _complete(self) -> bool:
        return all(ARRIVED in worker.inbox for worker in self._workers)

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

    def end(self) -> None:
        """End all other ranks, and leave the group. Safe to call more than once."""
        if self._ending.is_set():
            return
        self._ending.set()
        if self.lost is None:
            self.lost = "the group of ranks was closed: create the LLM again"
        for worker in self._workers:
            worker.end(0)
        if self._workers:
            break_off()  # otherwise NCCL would wait for these ranks
        self.before_leaving()
        leave_ranks()
        if self._folder is not None:
            rmtree(self._folder, ignore_errors=True)

    def _await_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.lost is not None, GRACE)

    def _watch(self) -> None:
        """End the group once a rank ends or is silent, or a forward pass exceeds the timeout."""
        for passed in watch(self._workers, HEARTBEAT_SECONDS):
            if self._ending.is_set():
                return
            if (error := self._fault(passed)) is not None:
                self._lose(error)
                return
            with self._changed:
                self._changed.notify_all()

    def _fault(self, passed: float) -> DlstepError | None:
        """Return why the group has to end, or None. `passed` is in seconds since the last call."""
        timeout = self.ranks.timeout
        for worker in self._workers:
            if worker.ended:
                kind = DlstepError if REFUSED in worker.inbox else RankLost
                return kind(f"{worker.reason}; {AGAIN}")
            if worker.silent_for(timeout):
                return silent(worker.name, worker.silence)
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
            self._error, self.lost = error, str(error)
            self._changed.notify_all()
        for worker in self._workers:  # so that no thread of rank 0 keeps waiting for a stopped rank
            worker.kill()
        break_off()
        self.when_lost(self.lost)


def start_worker_group(size: int, target: Callable[..., None], *arguments: Any, timeout: float = TIMEOUT) -> WorkerGroup:
    """Start ranks 1 to `size` - 1 as processes that run `target(rank_info, *arguments)`; join them.

    Raises DlstepError if a rank ends or stops answering before it joins.
    """
    folder = Path(mkdtemp(prefix="dlstep-ranks-"))
    workers: list[Worker] = []
    with ExitStack() as undone:
        undone.callback(rmtree, folder, ignore_errors=True)
        for rank in range(1, size):
            workers.append(Worker(_run, rank, size, folder / "meeting", target, arguments, name=f"rank {rank} of {size}"))
            undone.callback(workers[-1].kill)
        undone.pop_all()
    group = WorkerGroup(Ranks(0, size, timeout=timeout), workers, folder)
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
