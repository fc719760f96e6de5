"""Kernels compile for devices that are not here, without spilling; the checked-in table is that of these kernels.

`make test` compiles for Hopper, which most complaints are about, `make stress` for the others as well.
"""

import json
import subprocess

import pytest

from .aot_cases import CASES
from .kernel_aot import ARCHITECTURES, COMMAND, RESULTS, ROOT, complaints, environment

QUICK = [case for case in CASES if case.quick]
HOPPER = 90


def compiled(architecture):
    """Facts of the kernels that the quick cases were compiled to."""
    command = [*COMMAND, "--quick", "--architectures", str(architecture)]
    done = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.full
@pytest.mark.parametrize(
    "architecture", [HOPPER, *(pytest.param(each, marks=pytest.mark.stress) for each in ARCHITECTURES if each != HOPPER)]
)
def test_quick_cases_compile(architecture):
    """The text of the kernels has not changed since the table was made, so far as these cases show."""
    found = compiled(architecture)
    assert {(one["case"], one["architecture"]) for one in found} == {
        (case.name, f"sm_{architecture}") for case in QUICK if architecture >= case.least
    }
    assert not complaints(found)
    table = {entry["kernel"]: entry["source"] for entry in json.loads(RESULTS.read_text())["kernels"]}
    assert not {one["kernel"] for one in found if table.get(one["kernel"]) != one["source"]}, "run `make kernels-aot`"


def test_the_table_is_complete_and_without_complaints():
    entries = json.loads(RESULTS.read_text())["kernels"]
    found = {(entry["case"], entry["architecture"]) for entry in entries}
    expected = {(case.name, f"sm_{each}") for case in CASES for each in ARCHITECTURES if each >= case.least}
    assert found == expected, "run `make kernels-aot`"
    assert not complaints(entries)
