"""Processes of the ranks beside rank 0: started, watched and ended together."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from ..core import DlstepError
from ..models.ranks import Ranks, break_off, join_ranks, leave_ranks

PATIENCE = 5.0  # seconds that a rank has to end by itself


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands in a group: its rank of `size`, and the file in which ranks meet (None: torchrun's place)."""

    rank: int
    size: int
    meeting: Path | None


def place_in_torchrun(size: int) -> Place | None:
    """The place that torchrun gave this process; None outside of it. Raises ValueError if it started another number."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    world = int(os.environ["WORLD_SIZE"])
    if world != size:
        raise ValueError(f"tensor_parallel_size={size}, but torchrun started {world} processes: give the same number")
    return Place(int(os.environ["RANK"]), size, None)


class Crew:
    """The ranks as rank 0 sees them. `lost` says in words why the group has ended; None while it has not."""

    def __init__(self, ranks: Ranks, processes: list[BaseProcess], pipes: list[Connection], folder: Path | None) -> None:
        self.ranks = ranks
        self.lost: str | None = None
        self._processes, self._pipes, self._folder = processes, pipes, folder
        self._ending = threading.Event()
        self._calls: list[Callable[[str], None]] = []
        self._drops: list[Callable[[], None]] = []
        self._lock, self._asking = threading.Lock(), threading.Lock()
        if processes:
            threading.Thread(target=self._watch, name="dlstep-ranks", daemon=True).start()

    @property
    def pids(self) -> tuple[int | None, ...]:
        """The processes of ranks 1 and following, where this one started them."""
        return tuple([process.pid for process in self._processes])

    def check(self) -> None:
        """Raise DlstepError if the group has ended."""
        if self.lost is not None:
            raise DlstepError(self.lost)

    def ended_by(self, error: Exception) -> DlstepError:
        """The error that tells why the group ends, `error` having come up here; all other ranks are ended."""
        if isinstance(error, DlstepError):
            said = error
        else:  # a rank that is gone is the cause
            gone = self._gone(wait([process.sentinel for process in self._processes], timeout=1.0))
            said = DlstepError(gone or f"a forward failed on rank 0: {error}")
        self._lose(str(said))
        break_off()
        self.end()
        return said

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Have `call` told why once the group ends by itself; at once if it has."""
        with self._lock:
            self._calls.append(call)
            lost = self.lost
        if lost is not None:
            call(lost)

    def before_leaving(self, drop: Callable[[], None]) -> None:
        """Have `drop` free what holds exchanges of the group, before rank 0 leaves it."""
        self._drops.append(drop)

    def end(self) -> None:
        """End all other ranks; more than once does no harm."""
        if self._ending.is_set():
            return
        self._ending.set()
        if self.lost is None:
            self.lost = "the group of ranks was closed: make the LLM anew"
        for process in self._processes:
            process.kill()
        with self._asking:
            for process in self._processes:
                process.join(PATIENCE)
        if self._processes:
            break_off()  # NCCL would say goodbye to them
        for drop in self._drops:
            drop()
        leave_ranks()
        if self._folder is not None:
            rmtree(self._folder, ignore_errors=True)

    def _watch(self) -> None:
        """Wait for the first rank that ends, and tell of it."""
        gone = wait([process.sentinel for process in self._processes])
        if self._ending.is_set():
            return
        self._lose(self._gone(gone) or "a rank has ended")
        break_off()

    def _gone(self, sentinels: list[Any]) -> str | None:
        """Which rank has ended, of those whose sentinels say so, and what it said last; two threads may ask."""
        for rank, (process, pipe) in enumerate(zip(self._processes, self._pipes, strict=True), start=1):
            if process.sentinel in sentinels:
                with self._asking:  # only one thread can fetch the exit code
                    process.join(PATIENCE)  # its files are closed a little before it has one
                    said = _last_word(pipe) or f"its process ended with exit code {process.exitcode}"
                return f"rank {rank} of {self.ranks.size} is gone: {said}; make the LLM anew, or let the server restart it"
        return None

    def _lose(self, why: str) -> None:
        with self._lock:
            if self.lost is not None:
                return
            self.lost, calls = why, list(self._calls)
        for call in calls:
            call(why)


def _last_word(pipe: Connection) -> str | None:
    try:
        return str(pipe.recv()) if pipe.poll() else None
    except (EOFError, OSError):
        return None


def gather_crew(size: int, target: Callable[..., None], *given: Any) -> Crew:
    """Start ranks 1 to `size` - 1 as processes that run `target(place, *given)`, and meet them as rank 0.

    Raises DlstepError if one ends before it is there.
    """
    context = get_context("spawn")
    folder = Path(mkdtemp(prefix="dlstep-ranks-"))
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    for rank in range(1, size):
        ours, theirs = context.Pipe()
        place = Place(rank, size, folder / "meeting")
        process = context.Process(target=_run, args=(theirs, target, place, given), name=f"dlstep-rank-{rank}", daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    with ExitStack() as undone:
        undone.callback(rmtree, folder, ignore_errors=True)
        for process in processes:
            undone.callback(process.kill)
        for rank, pipe in enumerate(pipes, start=1):
            try:
                pipe.recv()
            except EOFError as error:
                raise DlstepError(f"rank {rank} of {size} ended before it was ready") from error
        crew = Crew(join_ranks(0, size, folder / "meeting"), processes, pipes, folder)
        undone.pop_all()
    return crew


def _run(pipe: Connection, target: Callable[..., None], place: Place, given: tuple[Any, ...]) -> None:
    """The process of a rank: it never outlives the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches all ranks: the first one decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send("ready")
    try:
        target(place, *given)
    except (ValueError, OSError, RuntimeError, DlstepError) as error:
        pipe.send(" ".join(str(error).split()))
        sys.exit(1)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "ranks are started by another process"
    wait([parent.sentinel])
    os._exit(1)
