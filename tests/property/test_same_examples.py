"""The examples of `dev` do not depend on which modules other tests have loaded."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRAW = """
import tests.conftest
{first}
from hypothesis import given, settings, strategies as st

@settings(max_examples=200)
@given(value=st.tuples(st.integers(), st.floats(), st.text()))
def drawn(value):
    print(ascii(value))

drawn()
"""


def drawn(folder: Path, first: str) -> str:
    """The examples of a test in a new process, which has run the line `first`. Hypothesis reads the test from its file."""
    file = folder / "drawn.py"
    file.write_text(DRAW.format(first=first))
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HYPOTHESIS_"))}
    done = subprocess.run(
        [sys.executable, str(file)], cwd=folder, capture_output=True, text=True, check=False, env=kept | {"PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_examples_are_the_same_whatever_is_loaded(tmp_path: Path) -> None:
    plain = drawn(tmp_path, "")
    assert plain.count("\n") > 150
    assert drawn(tmp_path, "import dlstep.core") == plain
