"""Where an engine runs: a process of its own, or a thread beside the one that asks. Both are reached through a pipe."""

import os
import signal
import sys
import threading
from dataclasses import replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from ..config import EngineConfig
from ..core import DlstepError, RanksDriver
from ..devices import device_of
from ..engine import Engine, load_engine
from ..lookup import searched
from .engine_loop import converse
from .messages import Failed

PATIENCE = 5.0  # seconds that an engine has to end by itself


class Host(Protocol):
    """Runs one engine at a time."""

    def start(self) -> Connection:
        """Start an engine; the pipe to it, which closes when it ends."""
        ...

    def end(self) -> None:
        """Wait for the engine that was asked to end, and end it by force if it does not."""
        ...


class ProcessHost:
    """Runs the engine of a configuration in a process, which can be killed and never outlives this one.

    `number` says which of several engines it is: each has a CUDA device of its own, as far as there are enough.
    """

    def __init__(self, config: EngineConfig, number: int = 0) -> None:
        self._config, self._number = config, number
        self._process: BaseProcess | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process; None before the first start."""
        return None if self._process is None else self._process.pid

    def start(self) -> Connection:
        """Start a fresh process; a fork would share this one's sockets and threads."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        alone = self._config.tensor_parallel_size == 1  # a daemon may not start the other ranks
        process = context.Process(
            target=run_process, args=(theirs, self._config, self._number), name=f"dlstep-engine-{self._number}", daemon=alone
        )
        process.start()
        theirs.close()  # so that its end closes the pipe
        self._process = process
        return ours

    def end(self) -> None:
        """Wait a little, then kill it: an engine in a long forward hears nothing."""
        if self._process is not None:
            self._process.join(PATIENCE)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()


class ThreadHost:
    """Runs an engine that was put together by hand in a thread, for tests and notebooks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread: threading.Thread | None = None

    def start(self) -> Connection:
        """Start the thread."""
        ours, theirs = get_context("spawn").Pipe()
        self._thread = threading.Thread(target=converse, args=(self._engine, theirs), name="dlstep-engine", daemon=True)
        self._thread.start()
        return ours

    def end(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(PATIENCE)


def run_process(pipe: Connection, config: EngineConfig, number: int) -> None:
    """The engine process: load, then converse. Signals are the HTTP process's affair, which lets requests end first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with searched(Path.cwd()):
            alone = config.tensor_parallel_size == 1  # several ranks have a device each
            engine = load_engine(replace(config, device=device_of(config.device, number)) if alone else config)
    except (ValueError, OSError, DlstepError) as error:
        pipe.send(Failed(" ".join(str(error).split())))
        return
    if isinstance(engine.driver, RanksDriver):
        engine.driver.when_lost(_end_with_rank)
    converse(engine, pipe)


def _end_with_rank(why: str) -> None:
    """End this process, so that its requests end and it is started anew with all ranks."""
    print(f"dlstep: {why}", file=sys.stderr, flush=True)
    os._exit(1)


def _end_with_parent() -> None:
    """End this process when its parent is gone, even in the middle of a forward or of loading weights."""
    parent = parent_process()
    assert parent is not None, "an engine process is started by another one"
    wait([parent.sentinel])
    sys.stderr.flush()
    os._exit(1)
