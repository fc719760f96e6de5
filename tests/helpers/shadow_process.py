"""Engines without a network in processes of their own, which start in under a second: this module imports no torch."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

from dlstep import Config, Plan, Samples, init
from dlstep.core import Strategy
from dlstep.engine.loader import LoadedEngine
from dlstep.processes import Heart, Worker
from dlstep.serve.engine_loop import execute_commands
from dlstep.serve.engine_process import ProcessHost
from dlstep.testing.shadow import ShadowDriver


class Hanging:
    """A driver that takes its time, and hangs in the third forward pass after a file appears, as long as it exists."""

    def __init__(self, config: Config, seconds: float, hangs: Path) -> None:
        self.driver = ShadowDriver(config.page_size, config.num_pages, config.spec, 0.0, places=4)
        self.seconds, self.hangs, self.passes = seconds, hangs, 0

    def run(self, plan: Plan) -> Samples:
        time.sleep(self.seconds)
        self.passes = self.passes + 1 if self.hangs.exists() else 0
        while self.passes > 2 and self.hangs.exists():
            time.sleep(0.05)
        return self.driver.run(plan)


def run_shadow(pipe: Connection, config: Config, strategy: Strategy, seconds: float, loads: Path, hangs: Path) -> None:
    """The process: load as long as a file exists, then execute commands."""
    heart = Heart(pipe)
    while loads.exists():
        time.sleep(0.05)
    execute_commands(LoadedEngine(init(config, strategy), Hanging(config, seconds, hangs), None, "shadow"), heart)


class ShadowHost(ProcessHost):
    """Runs an engine without a network in a process.

    Args:
        engine: Whose configuration and strategy it has.
        seconds: How long a forward pass takes.
        loads: A file; while it exists, engines load.
        hangs: A file; while it exists, forward passes hang.
    """

    def __init__(
        self, engine: LoadedEngine, seconds: float = 0.0, loads: Path = Path("/nonexistent"), hangs: Path = Path("/nonexistent")
    ) -> None:
        self._first, self._rest = engine.first, (seconds, loads, hangs)
        self._worker, self.starts = None, 0

    def start(self) -> Connection:
        self.starts += 1
        self._worker = Worker(run_shadow, self._first.config, self._first.strategy, *self._rest, name="dlstep-engine-0")
        return self._worker.connection
