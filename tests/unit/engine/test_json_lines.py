"""A folder that another holder writes to is refused, and a deleted one is noticed."""

import shutil
from contextlib import closing

import pytest

from dlstep.core import DlstepError
from dlstep.engine.json_lines import RunLock, append, check_free, opened


def test_a_second_holder_is_refused_until_the_first_is_closed(tmp_path):
    folder = tmp_path / "run"
    check_free(folder)
    with closing(RunLock(folder)) as lock:
        for other in (RunLock, check_free):
            with pytest.raises(ValueError, match=r"run is in use by another process: .*fuser .*run/lock"):
                other(folder)
        lock.check()
    check_free(folder)
    with closing(RunLock(folder)):
        pass


def test_a_folder_that_was_replaced_is_noticed(tmp_path):
    with closing(RunLock(tmp_path / "run")) as lock:
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(DlstepError, match="run was deleted or replaced"):
            lock.check()
        with closing(RunLock(tmp_path / "run")), pytest.raises(DlstepError, match="run was deleted or replaced"):
            lock.check()


def test_an_incomplete_last_line_is_cut_off_before_lines_are_added(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b"')
    with opened(path) as file:
        append(file, {"c": 3})
    assert path.read_bytes() == b'{"a": 1}\n{"c": 3}\n'
