"""Which control group limits the programs of a jail."""

from pathlib import Path

import pytest

from dlstep.evaluate import control_groups
from dlstep.evaluate.jail import parent_of_groups


def test_the_nearest_group_that_can_be_limited_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(control_groups, "OWN", tmp_path / "own")
    (tmp_path / "own").write_text("1:memory:/a\n0::/a/b/c\n")
    assert parent_of_groups() is None, "no groups of version 2"
    for path, controllers in (("", "memory pids"), ("a", "memory pids io"), ("a/b", "pids"), ("a/b/c", "")):
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path / "cgroup.subtree_control").write_text(controllers + "\n")
        (tmp_path / path / "cgroup.procs").write_text("")
    assert parent_of_groups() == tmp_path / "a"
    (tmp_path / "a" / "cgroup.procs").unlink()
    assert parent_of_groups() == tmp_path
    (tmp_path / "own").write_text("1:memory:/a\n")
    assert parent_of_groups() is None, "groups of version 1 alone"
