"""Figures that tests report are printed at the end, whoever ran the tests; what is left out is told."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_measures(number, report):
    report(f"{number} of four")

def test_fails(report):
    report("seen before it failed")
    assert False

@pytest.mark.stress
def test_takes_minutes(report):
    report("minutes")
"""


def run(folder: Path, *options: str) -> str:
    """The output of pytest for these tests."""
    (folder / "test_it.py").write_text(TESTS)
    (folder / "conftest.py").write_text((Path(__file__).parents[1] / "conftest.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = stress\naddopts = -m 'not stress'\n")
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), "-p", "no:cacheprovider", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder).stdout


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param([], id="one process", marks=pytest.mark.stress),
        pytest.param(["-n", "2", "--dist", "worksteal"], id="two workers"),
    ],
)
def test_figures_are_printed(workers: list[str], tmp_path: Path) -> None:
    shown = run(tmp_path, *workers)
    assert [line for line in shown.splitlines() if line.startswith("test_it.py: ")] == [
        "test_it.py: seen before it failed",
        *(f"test_it.py: {number} of four" for number in (1, 2, 3, 4)),
    ]
    assert "1 failed, 4 passed" in shown and "stress` runs them" in shown


def test_stress_tests_run_when_asked_for(tmp_path: Path) -> None:
    shown = run(tmp_path, "-m", "stress")
    assert "test_it.py: minutes" in shown and "1 passed" in shown and "runs them" not in shown
