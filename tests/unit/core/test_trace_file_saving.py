"""Saving a trace: there is always a whole file, and what is no file is written to as it is."""

import os
import threading
from pathlib import Path

import pytest

from dlstep import Trace

from ...helpers.recorded import recorded


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    old, new = recorded("multi_bd", 1)[0], recorded("multi_bd", 2)[0]
    path, link = tmp_path / "decode.jsonl", tmp_path / "link.jsonl"
    old.save(path)
    link.symlink_to(path)

    def failing(path, target):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="no space left"):
        new.save(path)
    assert Trace.load(path) == old and sorted(tmp_path.iterdir()) == [path, link]
    monkeypatch.undo()
    new.save(link)
    assert link.is_symlink() and Trace.load(path) == new and sorted(tmp_path.iterdir()) == [path, link]


def test_a_trace_is_written_to_what_is_no_file(tmp_path):
    trace, path = recorded("multi_bd", 2)[0], tmp_path / "out.jsonl"
    trace.save(path)
    fifo, found = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()))
    reader.start()
    trace.save(fifo)
    reader.join(10)
    assert found == [path.read_bytes()]
