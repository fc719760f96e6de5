"""A supervised worker: every way to end it, and that its parent is never kept waiting by one that is stopped."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from dlstep.processes import (
    HEARTBEAT_SECONDS,
    Heart,
    Worker,
    last_words,
    limit_waits,
    watch,
    worker as worker_module,
)

SOON = 30.0  # seconds on a busy machine
SHORT = 0.3  # a deadline that is meant to be missed


class WorkerDied(Exception):
    """The end of a worker, for the reason in its message."""


def receive(worker, seconds):
    """The next message of a worker without a `Heart`, which is killed if there is none in `seconds`."""
    try:
        if worker.connection.poll(seconds):
            return worker.connection.recv()
    except (EOFError, OSError) as error:
        raise WorkerDied(worker.reason) from error
    worker.kill(f"did not answer within {seconds:g} seconds and was killed")
    raise WorkerDied(worker.reason)


def echo(connection):
    """Send back what comes, until the connection closes."""
    try:
        while True:
            connection.send(connection.recv())
    except EOFError:
        return


def fail(connection, kind):
    """End in some way before anything is sent."""
    match kind:
        case "exception":
            raise RuntimeError("no\nmemory")
        case "exit":
            sys.exit(3)
        case "hard exit":
            os._exit(4)
        case "last words":
            last_words("rank 1 lost\nits device")
            last_words("a second reason")
            os._exit(1)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "abort":
            os.abort()
        case "return":
            return
        case _:
            raise AssertionError(kind)


def ignore(connection):
    """Neither read nor end."""
    connection.send("started")
    time.sleep(600)


def send_much(connection):
    """Send more than a pipe can hold."""
    connection.send("started")
    connection.send(bytes(1 << 24))


def parent_of_worker(connection):
    """Start a worker of its own, whose number goes over the connection."""
    worker = Worker(ignore, name="grandchild")
    receive(worker, SOON)
    connection.send(worker.pid)
    time.sleep(600)


def gone(pid):
    """Whether the process ends soon, or is a zombie that nobody has asked about."""
    end = time.monotonic() + SOON
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_worker_answers_and_ends_when_it_is_asked():
    worker = Worker(echo, name="echo")
    worker.connection.send({"number": 1})
    assert receive(worker, SOON) == {"number": 1} and worker.alive
    worker.connection.close()
    worker.end(SOON)
    assert not worker.alive and worker.reason == "echo ended with exit code 0"


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("exception", r"failed: RuntimeError: no memory \(test_worker.py:\d+\)"),
        ("exit", "ended with exit code 3"),
        ("hard exit", "ended with exit code 4"),
        ("last words", "failed: rank 1 lost its device"),
        ("kill", r"was killed by SIGKILL \(memory may have run out\)"),
        ("abort", "was killed by SIGABRT"),
        ("return", "ended with exit code 0"),
    ],
)
def test_worker_that_ends_in_its_start_tells_the_reason(kind, reason):
    worker = Worker(fail, kind, name="worker 7")
    with pytest.raises(WorkerDied, match=f"^worker 7 {reason}$"):
        receive(worker, SOON)
    with pytest.raises(WorkerDied, match=f"^worker 7 {reason}$"):  # asked again: the same reason, at once
        receive(worker, SOON)
    worker.end()


def test_unpicklable_argument_is_an_error_of_the_caller():
    for given in (threading.Lock(), lambda: None):
        with pytest.raises(ValueError, match=r"^the process worker cannot receive this value: .*: define it at"):
            Worker(ignore, given, name="worker")
    Worker(echo, name="the next one starts").end(0)


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_worker_that_stops_answering_is_dead_after_the_deadline(number, started):
    worker = Worker(echo, name="worker")
    if started:
        worker.connection.send(1)
        assert receive(worker, SOON) == 1
    os.kill(worker.pid, number)  # maybe before its modules are imported
    reason = "did not answer within 0.3 seconds and was killed" if number == signal.SIGSTOP else "was killed by SIGKILL"
    with pytest.raises(WorkerDied, match=f"worker {reason}"):
        receive(worker, SHORT if number == signal.SIGSTOP else SOON)  # a killed one may be slow to end
    assert gone(worker.pid) and reason in worker.reason
    worker.end()


def test_worker_that_is_stopped_within_a_message_is_dead_after_the_deadline(monkeypatch):
    monkeypatch.setattr(worker_module, "PATIENCE", SHORT)
    worker = Worker(send_much, name="worker")
    limit_waits(worker.connection, socket.SO_RCVTIMEO, SHORT)
    assert receive(worker, SOON) == "started"
    time.sleep(SHORT)  # it fills its pipe
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerDied, match="closed its connection but did not end"):
        receive(worker, SOON)
    worker.end(0)


def read_late(connection):
    """Read nothing for a while, as in a long forward pass."""
    time.sleep(4 * SHORT)
    connection.send(len(connection.recv()))


def test_sender_waits_for_a_worker_that_reads_late(monkeypatch):
    monkeypatch.setattr(worker_module, "IMPORT_SECONDS", SHORT)
    monkeypatch.setattr(worker_module, "PATIENCE", SHORT)
    worker = Worker(read_late, name="worker")
    worker.connection.send(bytes(1 << 24))
    assert receive(worker, SOON) == 1 << 24
    worker.end(SOON)


def test_kill_unblocks_a_thread_that_receives():
    worker, told = Worker(ignore, name="worker"), []

    def read():
        try:
            while True:
                receive(worker, SOON)
        except WorkerDied as error:
            told.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    os.kill(worker.pid, signal.SIGSTOP)
    worker.kill("answered nothing and was killed")
    worker.kill("a later reason")
    thread.join(SOON)
    assert told == ["worker answered nothing and was killed"]
    worker.end()


def test_worker_that_does_not_end_is_killed():
    worker = Worker(ignore, name="worker")
    assert receive(worker, SOON) == "started"
    worker.end(SHORT)
    assert not worker.alive and worker.reason == "worker did not end within 0.3 seconds and was killed"


@pytest.mark.parametrize("number", [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)])
def test_signals_are_left_to_the_parent(number):
    worker = Worker(echo, name="worker")
    os.kill(worker.pid, number)  # while it imports its modules
    worker.connection.send(1)
    assert receive(worker, SOON) == 1
    os.kill(worker.pid, number)
    worker.connection.send(2)
    assert receive(worker, SOON) == 2
    worker.end(0)


def test_worker_does_not_outlive_a_parent_that_is_killed():
    parent = Worker(parent_of_worker, name="parent")
    pid = receive(parent, SOON)
    os.kill(parent.pid, signal.SIGKILL)
    assert gone(pid)
    parent.end()


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.unit.processes.test_worker import ignore, receive
from dlstep.processes import Worker

if __name__ == "__main__":
    worker = Worker(ignore, name="worker")
    print(receive(worker, 30), worker.pid, flush=True)
"""


def test_program_that_leaves_a_worker_behind_ends(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(Path(__file__).parents[3])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=False)
    assert done.returncode == 0, done.stderr
    assert gone(int(done.stdout.split()[1]))


def beat(connection, passes):
    """Send heartbeats with progress, and a message for each number that comes."""
    heart = Heart(connection)
    heart.progress = passes
    try:
        while True:
            heart.send(connection.recv())
    except EOFError:
        heart.close()


@pytest.mark.full
def test_watch_collects_messages_and_notices_silence_and_end():
    worker, other = Worker(beat, 1, name="worker"), Worker(beat, 1, name="other")
    for each in (worker, other):
        each.connection.send("a")
        each.connection.send("b")
    times = watch([worker, other], SHORT)
    while not worker.inbox[1:] or not other.inbox[1:] or worker.standstill < 1.5 * HEARTBEAT_SECONDS:
        assert 0 <= next(times) <= 2 * HEARTBEAT_SECONDS
    assert worker.inbox == other.inbox == ["a", "b"] and not worker.ended
    assert worker.silence < worker.standstill <= worker.age
    assert not worker.silent_for(2 * HEARTBEAT_SECONDS)
    os.kill(worker.pid, signal.SIGSTOP)
    while not worker.silent_for(2 * HEARTBEAT_SECONDS):
        next(times)
    assert not other.silent_for(2 * HEARTBEAT_SECONDS) and not worker.ended
    worker.kill()
    while not worker.ended:
        next(times)
    next(times)
    assert not other.ended and "was killed" in worker.reason
    for each in (worker, other):
        each.end(0)


def test_a_paused_parent_does_not_count_as_silence(monkeypatch):
    moments = iter([0.0, 3600.0])
    monkeypatch.setattr(worker_module, "monotonic", lambda: next(moments))
    worker = Worker(echo, name="worker")
    assert next(watch([worker], 0.0)) == 2 * HEARTBEAT_SECONDS == worker.silence
    worker.end(0)


class Unimportable:
    """Raises when it is unpickled, as an import in the worker process may."""

    def __reduce__(self):
        return __import__, ("dlstep_is_without_this",)


def test_import_that_fails_in_the_worker_is_the_reason():
    worker = Worker(ignore, Unimportable(), name="worker")
    with pytest.raises(WorkerDied, match="worker failed: ModuleNotFoundError: No module named 'dlstep_is_without_this'"):
        receive(worker, SOON)
    worker.end()
