"""Hosts, which run an engine in a separate process, connected by a pipe."""

import gc
import logging
import os
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from ..core import DlstepError
from ..core.plugins import searched
from ..distributed import RankLost
from ..engine.config import EngineConfig
from ..engine.decode import RanksDriver
from ..engine.devices import FIRST_DEVICE, device_of
from ..engine.loader import load_engine
from ..processes import Heart, Worker, last_words
from .engine_loop import execute_commands
from .log_lines import LineHandler
from .messages import EngineFailed


class Death(NamedTuple):
    """Why an engine ended: `reason` for the log, `public_reason` for clients.

    An exception's message may contain secrets, so `public_reason` never contains one.
    """

    reason: str
    public_reason: str


class Host(Protocol):
    """Runs one engine at a time."""

    def start(self) -> Connection:
        """Start an engine. Return the pipe to it, which closes when the engine ends."""
        ...

    def kill(self, reason: str) -> None:
        """Kill the engine immediately. `reason` is a predicate, as in "the engine {reason}"."""
        ...

    def end(self, seconds: float) -> Death:
        """Wait up to `seconds` for the engine to exit, then kill it. Return why it ended."""
        ...


class ProcessHost:
    """Runs an engine in a separate process, which can be killed and never outlives this one.

    `number` is the replica's index; it selects the CUDA device if there are enough devices.
    """

    def __init__(self, config: EngineConfig, number: int = 0) -> None:
        self._config, self._number = config, number
        self._worker: Worker | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process; None before the first start."""
        return None if self._worker is None else self._worker.pid

    def start(self) -> Connection:
        """Start a new process. Return this end of its pipe."""
        self._worker = Worker(run_process, self._config, self._number, name=f"dlstep-engine-{self._number}")
        return self._worker.connection

    def kill(self, reason: str) -> None:
        """Kill the process, even if it is stopped."""
        if self._worker is not None:
            self._worker.kill(reason)

    def end(self, seconds: float) -> Death:
        """Wait up to `seconds`, then kill the process, which may be in a long forward pass."""
        assert self._worker is not None, "it was started"
        self._worker.end(seconds)
        return Death(self._worker.reason, self._worker.ending)


def run_process(pipe: Connection, config: EngineConfig, number: int) -> None:
    """Run the engine process: start heartbeats, load the engine, then execute commands."""
    heart = Heart(pipe)
    logging.getLogger().addHandler(LineHandler(2))
    gc.disable()  # the millions of objects that loading creates stay: traversing them would only take time
    try:
        with searched(Path.cwd()):
            if config.tensor_parallel_size == 1:
                config = replace(config, device=device_of(config.device, number))
            else:  # each rank has a device; the rank processes inherit this variable
                os.environ[FIRST_DEVICE] = str(number * config.tensor_parallel_size)
            engine = load_engine(config)
    except RankLost as error:  # a restart may help, unlike for invalid options
        _end_with_rank(str(error))
    except (ValueError, OSError, DlstepError) as error:
        heart.send(EngineFailed.because(error))
        return
    finally:
        gc.enable()
    if isinstance(engine.driver, RanksDriver):
        engine.driver.when_lost(_end_with_rank)
    gc.freeze()  # collections between steps do not traverse them either
    execute_commands(engine, heart)


def _end_with_rank(reason: str) -> NoReturn:
    """End this process, so that its requests end and the server restarts it with all ranks."""
    last_words(reason)  # printed by the server
    os._exit(1)
