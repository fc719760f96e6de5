"""Which tests belong to a source file, by the mirrored layout of `tests/unit`, and copies of the sources to change."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
ELSEWHERE = tomllib.loads((TESTS / "tested_elsewhere.toml").read_text())
PROPERTIES = ("core/", "rules/", "strategies/", "engine/decode.py")  # files whose faults the laws detect


def unit_tests(file: str) -> list[str]:
    """Return the unit tests of a file below `src/dlstep`, or below `src` for `dlstep_kernels`."""
    *folders, name = Path(file).with_suffix("").parts
    folder, stem = TESTS.joinpath("unit", *folders), f"test_{name.strip('_')}"
    found = [*folder.glob(f"{stem}.py"), *sorted(folder.glob(f"{stem}_*.py"))]
    listed = ELSEWHERE.get(file if file.startswith("dlstep_kernels/") else f"dlstep/{file}", [])
    return [*(str(path.relative_to(ROOT)) for path in found), *listed]


def stages(file: str, first: Sequence[str] = ()) -> list[list[str]]:
    """Return the pytest arguments for the tests of a file, in the order to run them.

    Unit tests come before the laws, and the laws of one strategy before those of the others.
    """
    strategy = Path(file).stem if re.match(r"strategies/[^_]", file) else "multi_bd"
    laws = [["tests/property/test_laws.py", "-k", strategy], ["tests/property", "tests/reference"]]
    return [[*dict.fromkeys([*first, *unit_tests(file)])], *(laws if file.startswith(PROPERTIES) else [])]


def link_sources(folder: Path) -> None:
    """Fill `folder` with links to all sources, so that one of them can be replaced."""
    for package in ("dlstep", "dlstep_kernels"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / package, folder / package, ignore=ignored, copy_function=os.symlink)
    folder.chmod(0o755)  # a test starts a process of another user, which must read the sources


def run_tests(
    tests: list[str], sources: Path, profile: str = "mutants", timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run pytest on the sources in a folder, until the first failure. Raises TimeoutExpired after `timeout` seconds."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "HYPOTHESIS_PROFILE": profile, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rf", "--tb=line", "-p", "no:cacheprovider"]
    # By a thread, which ends the process: after an exception from a signal, Hypothesis would repeat an endless example.
    # A test that hangs must fail before `timeout` ends the run.
    command += [f"--timeout={(timeout or 480) / 2:.0f}", "--timeout-method=thread", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=timeout)
