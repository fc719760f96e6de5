"""Saving a trace: there is always a whole file, and what is no file is written to as it is."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dlstep import Trace
from dlstep.core import trace

from ...helpers.recorded import recorded


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = recorded("multi_bd", 1)[0], recorded("multi_bd", 2)[0]
    path, link = tmp_path / "decode.jsonl", tmp_path / "link.jsonl"
    old.save(path)
    link.symlink_to(path)
    left, text = [len(new.events) // 2], trace._text

    def failing(data: Any) -> str:
        if isinstance(data, dict) and "crc" in data:
            left[0] -= 1
            if not left[0]:
                raise OSError("no space left")
        return text(data)

    monkeypatch.setattr(trace, "_text", failing)
    with pytest.raises(OSError, match="no space left"):
        new.save(path)
    assert Trace.load(path) == old and sorted(tmp_path.iterdir()) == [path, link]
    monkeypatch.undo()
    new.save(link)
    assert link.is_symlink() and Trace.load(path) == new and sorted(tmp_path.iterdir()) == [path, link]


ROOT = str(Path(__file__).parents[3])
KILLED = f"""
import os, signal, sys
sys.path.insert(0, {ROOT!r})
from tests.helpers.recorded import recorded
from dlstep.core import trace
text = trace._text
def dying(data):
    if isinstance(data, dict) and data.get("class") == "dlstep.core:Samples":
        os.kill(os.getpid(), signal.SIGKILL)
    return text(data)
trace._text = dying
recorded("multi_bd", 2)[0].save(sys.argv[1])
"""
PRINTED = f"""
import sys
sys.path.insert(0, {ROOT!r})
from tests.helpers.recorded import recorded
print("before", flush=True)
recorded("multi_bd", 2)[0].save("/dev/stdout")
"""


def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    old, path = recorded("multi_bd", 1)[0], tmp_path / "decode.jsonl"
    old.save(path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert Trace.load(path) == old


def test_a_trace_is_written_to_what_is_no_file(tmp_path: Path) -> None:
    trace, path = recorded("multi_bd", 2)[0], tmp_path / "out.jsonl"
    trace.save(path)
    expected = b"before\n" + path.read_bytes()
    piped = subprocess.run([sys.executable, "-c", PRINTED], capture_output=True, check=True)
    assert piped.stdout == expected
    with (tmp_path / "redirected").open("wb") as file:
        subprocess.run([sys.executable, "-c", PRINTED], stdout=file, check=True)
    assert (tmp_path / "redirected").read_bytes() == expected
    fifo, found = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()))
    reader.start()
    trace.save(fifo)
    reader.join(10)
    assert found == [path.read_bytes()]
