"""The folder of a run: one process at a time, and checksums of its lines."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dlstep.batch.checkpoint import ANSWERS, BESIDE
from dlstep.evaluate.checkpoint import read

from .conftest import copied
from .running import answers, run


def altered(line, name):
    """The line with another value of the same kind in a field."""
    value = line[name]
    match value:
        case bool():
            return line | {name: not value}
        case int() | float():
            return line | {name: value + 1}
        case str():
            return line | {name: f"{value}1"}
        case list():
            return line | {name: value[1:] if value else [1]}
        case _:
            return line | {name: {**value, "more": 1}}


@given(st.data())
def test_any_altered_field_is_told_with_file_and_line(options, tmp_path_factory, data):
    name = data.draw(st.sampled_from([ANSWERS, BESIDE]))
    lines = (Path(options.out) / name).read_text().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[number])
    change = data.draw(
        st.sampled_from([lambda field: altered(line, field), lambda field: {k: v for k, v in line.items() if k != field}])
    )
    lines[number] = json.dumps(change(data.draw(st.sampled_from(sorted(line)))))
    folder = copied(Path(options.out), tmp_path_factory.mktemp("altered") / "run")
    (folder / name).write_text("\n".join(lines) + "\n")
    for reader in (lambda: read(folder), lambda: run(replace(options, out=str(folder)))):
        with pytest.raises(ValueError, match=rf"{name}, line {number + 1} does not have its checksum"):
            reader()
    shutil.rmtree(folder)


@pytest.mark.parametrize("name, number", [(ANSWERS, 4), (BESIDE, 2)])
def test_a_deleted_line_is_answered_again_to_the_same_bytes(options, tmp_path, name, number, added):
    folder = copied(Path(options.out), tmp_path / "run")
    lines = (folder / name).read_bytes().splitlines(keepends=True)
    (folder / name).write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))
    assert len(read(folder).rows) == read(folder).expected - 1
    assert answers(run(replace(options, out=str(folder)))) == answers(Path(options.out))
    assert len(added) == 1, "no other one is decoded"
    assert read(folder).beside.keys() == read(Path(options.out)).beside.keys()
