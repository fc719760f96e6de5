"""The spawner of workers."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dlstep.processes import Worker

from .test_worker import gone, ignore

SOON = 30.0  # seconds on a busy machine


def test_interrupted_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C while the spawner starts a process: it is killed although nobody holds it."""
    from dlstep.processes import spawner

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    jobs: list[Any] = []
    made: Callable[[Any], Any] = spawner._Job

    def job(process: Any) -> Any:
        jobs.append(made(process))
        jobs[0].done = Interrupted()
        return jobs[0]

    monkeypatch.setattr(spawner, "_Job", job)
    with pytest.raises(KeyboardInterrupt):
        Worker(ignore, name="worker")
    while not jobs[0].done.is_set():
        time.sleep(0.01)
    assert jobs[0].error is not None or gone(jobs[0].process.pid)  # it may find its pipes closed, and not start
