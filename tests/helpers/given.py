"""Where the files of the tasks are."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("DLSTEP_DATA") or ROOT.parent / "shared" / "data")
FILES = ("GSM8K.json", "MATH500.json", "HumanEval.json", "MBPP_sanitized.json")

needs_data = pytest.mark.skipif(
    not all((DATA / name).is_file() for name in FILES),
    reason=f"no {', '.join(FILES)} in {DATA}: set DLSTEP_DATA to a folder with them",
)
