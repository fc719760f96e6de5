"""The spawner of workers."""

from concurrent.futures import Future

import pytest

from dlstep.processes import Worker, worker

from .test_worker import gone, ignore

SOON = 30.0  # seconds on a busy machine


def test_interrupted_start_leaves_no_process(monkeypatch):
    """Ctrl-C while the spawner starts a process: it is killed although nobody holds it."""
    made = []

    class Interrupted(Future[None]):
        def result(self, timeout=None):
            made.append(self)
            raise KeyboardInterrupt

    started = []
    start = worker._spawner.start
    monkeypatch.setattr(worker._spawner, "start", lambda process: (started.append(process), start(process)))
    monkeypatch.setattr(worker, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        Worker(ignore, name="worker")
    failed = made[0].exception(SOON)  # it may find its pipes closed, and not start
    assert failed is not None or gone(started[0].pid)
