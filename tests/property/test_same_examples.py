"""The examples of `dev` do not depend on which modules other tests have loaded."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = """
{first}
from hypothesis import given, settings, strategies as st

@settings(max_examples=200)
@given(value=st.tuples(st.integers(), st.floats(), st.text()))
def test_drawn(value):
    print(ascii(value))
"""


def drawn(folder: Path, first: str) -> str:
    """The examples of a test in a new process, whose file begins with the line `first`."""
    (folder / "test_drawn.py").write_text(FILE.format(first=first))
    arguments = [
        "-q",
        "-s",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--rootdir",
        str(folder),
        "-c",
        "/dev/null",
    ]
    command = [sys.executable, "-m", "pytest", *arguments, str(folder / "test_drawn.py")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HYPOTHESIS_"))}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=kept)
    assert done.returncode == 0, done.stdout
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("("))


def test_examples_are_the_same_whatever_is_loaded(tmp_path: Path) -> None:
    plain = drawn(tmp_path, "")
    assert plain.count("\n") > 150
    assert drawn(tmp_path, "import dlstep.core") == plain
