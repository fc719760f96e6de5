"""Kernels compile for devices that are not here, without spilling; the checked-in table is that of these kernels."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aot_cases import CASES
from kernel_aot import ARCHITECTURES, RESULTS, complaints, environment

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

QUICK = [case.name for case in CASES if case.quick]


@pytest.fixture(scope="session")
def compiled() -> list[dict[str, Any]]:
    """What the quick cases were compiled to."""
    command = [sys.executable, str(Path(__file__).with_name("kernel_aot.py")), "--quick"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", QUICK)
def test_compiles(name: str, architecture: int, compiled: list[dict[str, Any]]) -> None:
    mine = [one for one in compiled if one["case"] == name and one["architecture"] == f"sm_{architecture}"]
    assert mine, "nothing was launched"
    assert not complaints(mine)


def test_the_table_is_complete_and_without_complaints() -> None:
    entries = json.loads(RESULTS.read_text())["kernels"]
    found = {(entry["case"], entry["architecture"]) for entry in entries}
    expected = {(case.name, f"sm_{architecture}") for case in CASES for architecture in ARCHITECTURES}
    assert found == expected, "run `make kernels-aot`"
    assert not complaints(entries)


@pytest.mark.slow
def test_the_table_is_of_these_kernels(compiled: list[dict[str, Any]]) -> None:
    """The text of the kernels has not changed since, so far as the quick cases show."""
    table = {entry["kernel"]: entry["source"] for entry in json.loads(RESULTS.read_text())["kernels"]}
    changed = {entry["kernel"] for entry in compiled if table.get(entry["kernel"]) != entry["source"]}
    assert not changed, "run `make kernels-aot`"
