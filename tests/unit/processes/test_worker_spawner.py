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
    from dlstep.processes import worker as spawner

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    requests: list[Any] = []
    made: Callable[[Any], Any] = spawner._StartRequest

    def start_request(process: Any) -> Any:
        requests.append(made(process))
        requests[0].done = Interrupted()
        return requests[0]

    monkeypatch.setattr(spawner, "_StartRequest", start_request)
    with pytest.raises(KeyboardInterrupt):
        Worker(ignore, name="worker")
    while not requests[0].done.is_set():
        time.sleep(0.01)
    assert requests[0].error is not None or gone(requests[0].process.pid)  # it may find its pipes closed, and not start
