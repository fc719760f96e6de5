"""Kernels compile for devices that are not here, without spilling; the checked-in table is that of these kernels.

`make test` compiles for Hopper, which most complaints are about, `make stress` for the others as well.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aot_cases import CASES
from kernel_aot import ARCHITECTURES, RESULTS, complaints, environment

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

QUICK = [case.name for case in CASES if case.quick]
HOPPER = 90


@cache
def compiled(architecture: int) -> list[dict[str, Any]]:
    """What the quick cases were compiled to."""
    command = [sys.executable, str(Path(__file__).with_name("kernel_aot.py")), "--quick", "--architectures", str(architecture)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture", [HOPPER, *(pytest.param(each, marks=pytest.mark.stress) for each in ARCHITECTURES if each != HOPPER)]
)
@pytest.mark.parametrize("name", QUICK)
def test_compiles(name: str, architecture: int) -> None:
    mine = [one for one in compiled(architecture) if one["case"] == name and one["architecture"] == f"sm_{architecture}"]
    assert mine, "nothing was launched"
    assert not complaints(mine)


def test_the_table_is_complete_and_without_complaints() -> None:
    entries = json.loads(RESULTS.read_text())["kernels"]
    found = {(entry["case"], entry["architecture"]) for entry in entries}
    expected = {(case.name, f"sm_{architecture}") for case in CASES for architecture in ARCHITECTURES}
    assert found == expected, "run `make kernels-aot`"
    assert not complaints(entries)


@pytest.mark.slow
def test_the_table_is_of_these_kernels() -> None:
    """The text of the kernels has not changed since, so far as the quick cases show."""
    table = {entry["kernel"]: entry["source"] for entry in json.loads(RESULTS.read_text())["kernels"]}
    changed = {entry["kernel"] for entry in compiled(HOPPER) if table.get(entry["kernel"]) != entry["source"]}
    assert not changed, "run `make kernels-aot`"
