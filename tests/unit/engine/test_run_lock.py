"""Who holds the lock of a folder."""

from contextlib import closing
from pathlib import Path

import pytest

from dlstep.engine.run_lock import LOCK, RunLock


def test_a_holder_is_named_by_its_host_and_one_that_wrote_nothing_yet_by_no_name(tmp_path: Path) -> None:
    for said, expected in (
        ('{"pid": 7, "host": "elsewhere"}', "in use by process 7 on elsewhere: wait"),
        ("", "in use by another process: wait"),
        ("[" * 5000, "in use by another process: wait"),
        ('{"pid": -1, "host": "x"}', "in use by another process: wait"),
    ):
        with closing(RunLock(tmp_path)):
            (tmp_path / LOCK).write_text(said)
            with pytest.raises(ValueError, match=expected):
                RunLock(tmp_path)
