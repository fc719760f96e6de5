"""The folder of a run: what is left of it is kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlstep.batch.checkpoint import ANSWERS, BESIDE
from dlstep.evaluate.checkpoint import read

from .conftest import copied
from .running import answers, run


@pytest.mark.parametrize("name, number", [(ANSWERS, 4), (BESIDE, 2)])
def test_a_deleted_line_is_answered_again_to_the_same_bytes(options, tmp_path, name, number, added):
    folder = copied(Path(options.out), tmp_path / "run")
    lines = (folder / name).read_bytes().splitlines(keepends=True)
    (folder / name).write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))
    assert len(read(folder).rows) == read(folder).expected - 1
    assert answers(run(replace(options, out=str(folder)))) == answers(Path(options.out))
    assert len(added) == 1, "no other one is decoded"
    assert read(folder).beside.keys() == read(Path(options.out)).beside.keys()
