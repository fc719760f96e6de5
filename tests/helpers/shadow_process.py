"""Engines without a network in processes of their own, which start in under a second: this module imports no torch."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

from dlstep import Config, Plan, Samples, init
from dlstep.core import Strategy
from dlstep.engine.loader import LoadedEngine
from dlstep.processes import Heart, Worker, child
from dlstep.serve.engine_loop import execute_commands
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
            time.sleep(0.02)
        return self.driver.run(plan)


def run_shadow(
    pipe: Connection, config: Config, strategy: Strategy, beat: float, seconds: float, loads: Path, hangs: Path
) -> None:
    """The process: load as long as a file exists, then execute commands."""
    child.HEARTBEAT_SECONDS = beat
    heart = Heart(pipe)
    while loads.exists():
        time.sleep(0.02)
    execute_commands(LoadedEngine(init(config, strategy), Hanging(config, seconds, hangs), None, "shadow"), heart)


class ShadowHost:
    """Runs an engine without a network in a process, `worker`.

    Args:
        engine: Whose configuration and strategy it has.
        beat: Seconds between heartbeats.
        seconds: How long a forward pass takes.
        loads: A file; while it exists, engines load.
        hangs: A file; while it exists, forward passes hang.
    """

    worker: Worker

    def __init__(
        self,
        engine: LoadedEngine,
        beat: float = 1.0,
        seconds: float = 0.0,
        loads: Path = Path("/nonexistent"),
        hangs: Path = Path("/nonexistent"),
    ) -> None:
        self._given = (engine.first.config, engine.first.strategy, beat, seconds, loads, hangs)
        self.starts = 0

    @property
    def pid(self) -> int:
        return self.worker.pid

    def start(self) -> Worker:
        self.worker = Worker(run_shadow, *self._given, name="dlstep-engine-0")
        self.starts += 1
        return self.worker
