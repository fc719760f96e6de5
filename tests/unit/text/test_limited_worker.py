"""A worker ends a job that takes too long or too much memory, and does the next one."""

import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from dlstep.text import limited_worker
from dlstep.text.limited_worker import LimitedWorker

from ...helpers.waiting import until

BOMBS = {
    "a long wait": ("time:sleep", 60, "was killed: try again"),
    "one long operation": ("math:factorial", 10**9, "more than 1 seconds of processor time"),
    "much memory": ("builtins:bytes", 1 << 31, "too much memory"),
}


def echoed(worker, text):
    return worker.ask("codecs:encode", text).decode()


def process_of(worker):
    """The process of a worker, after an ordinary job."""
    assert echoed(worker, "ordinary") == "ordinary"
    return worker._process


@pytest.fixture
def worker():
    worker = LimitedWorker()
    yield worker
    worker.close()


def test_a_process_does_many_jobs_and_each_has_the_whole_time(worker):
    process = process_of(worker)
    worker.seconds = 1.0
    begun = time.monotonic()
    while time.monotonic() - begun < 1.5:
        assert echoed(worker, "a") == "a"
    with pytest.raises(limited_worker.NotDoneError, match="KeyError: 'unknown'"):
        worker.ask("operator:getitem", {}, "unknown")
    with pytest.raises(ValueError, match="bytes must be in range") as refusal:
        worker.ask("builtins:bytes", [256])
    assert type(refusal.value) is ValueError
    assert process_of(worker) is process


@pytest.mark.parametrize("bomb", [pytest.param("a long wait", marks=pytest.mark.full), *[*BOMBS][1:]])
def test_another_process_does_the_job_after_one_that_was_ended(bomb, worker, monkeypatch):
    process = process_of(worker)
    monkeypatch.setattr(limited_worker, "BUSY", 2 if bomb == "a long wait" else limited_worker.BUSY)
    worker.seconds = 1.0
    job, argument, reason = BOMBS[bomb]
    with pytest.raises(ValueError, match=reason):
        worker.ask(job, argument)
    assert process.returncode is not None
    assert process_of(worker) is not process


def test_a_process_that_was_killed_between_jobs_is_replaced(worker):
    process = process_of(worker)
    process.kill()
    process.wait()
    assert process_of(worker) is not process


def test_a_process_that_never_starts_is_reported(worker, monkeypatch):
    monkeypatch.setattr(limited_worker, "WORKER", Path("no_worker.py"))
    with pytest.raises(limited_worker.NotDoneError, match="did not start"):
        echoed(worker, "a")


def test_waiting_takes_no_processor_time_and_no_job_has_the_memory_of_earlier_ones(worker):
    """On a busy machine a job waits for the processors; what earlier jobs left in memory is not its doing."""
    process = process_of(worker)
    worker.seconds = 0.5
    assert worker.ask("subprocess:check_output", ["sleep", "1"]) == b""
    for _ in range(3):
        with pytest.raises(ValueError, match="makes more than"):
            worker.ask("tests.helpers.compiler:hoarded", 1 << 28)
        assert worker.ask("tests.helpers.compiler:kept") == b"0"
    assert process_of(worker) is process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_whose_process_is_killed_is_reported(number, worker):
    with pytest.raises(limited_worker.NotDoneError, match="was killed: try again"):
        worker.ask("signal:raise_signal", number)
    assert echoed(worker, "c") == "c"


def test_stopping_a_job_ends_the_process_that_does_it(worker, tmp_path):
    process, path, job = process_of(worker), tmp_path / "pid", Event()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(worker.ask, "tests.helpers.compiler:endless", str(path), stopped=job)
        until(path.exists, 10)
        worker.stop(job)
        with pytest.raises(limited_worker.NotDoneError, match="was killed: try again"):
            asked.result()
    command = Path(f"/proc/{path.read_text()}/cmdline")  # a zombie has none
    until(lambda: not (command.exists() and command.read_bytes()), 5)
    assert process.returncode == -signal.SIGKILL


def test_the_answer_to_an_interrupted_job_is_never_read(worker, monkeypatch):
    process = process_of(worker)

    def interrupted(*given):
        process.stdin.write(pickle.dumps((10.0, "codecs:encode", ("stale",))))
        process.stdin.flush()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(limited_worker, "_answer", interrupted)
        echoed(worker, "x")
    assert process_of(worker) is not process


def test_threads_share_a_process(worker):
    with ThreadPoolExecutor(8) as threads:
        texts = threads.map(lambda number: echoed(worker, str(number)), range(100))
        assert list(texts) == [str(number) for number in range(100)]


def test_a_process_ends_with_the_one_that_started_it():
    script = (
        "from dlstep.text.limited_worker import LimitedWorker\nworker = LimitedWorker()\n"
        "print(len(worker.ask('builtins:bytes')), worker._process.pid)\n"
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-u", "-c", script], capture_output=True, text=True, check=False, timeout=100)
    text, pid = done.stdout.split()
    assert (text, done.returncode) == ("0", -signal.SIGKILL)
    command = Path(f"/proc/{pid}/cmdline")  # a zombie has none
    until(lambda: not (command.exists() and command.read_bytes()), 10)


def test_a_forked_process_starts_another_one():
    script = (
        "import os\nfrom dlstep.text.limited_worker import LimitedWorker\nworker = LimitedWorker()\n"
        "def pid():\n    assert worker.ask('builtins:bytes') == b''\n    return worker._process.pid\n"
        "first = pid()\nchild = os.fork()\nif not child:\n    assert pid() != first\n    raise SystemExit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\nassert pid() == first\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
