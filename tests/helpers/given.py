"""Where the files of the tasks are, and the tables of the page."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evaluation.md"
DATA = Path(os.environ.get("DLSTEP_DATA") or ROOT.parent / "shared" / "data")
FILES = ("GSM8K.json", "MATH500.json", "HumanEval.json", "MBPP_sanitized.json")

needs_data = pytest.mark.skipif(
    not all((DATA / name).is_file() for name in FILES),
    reason=f"no {', '.join(FILES)} in {DATA}: set DLSTEP_DATA to a folder with them",
)


def cases() -> list[tuple[str, str, str, float]]:
    """Task, answer, expected answer and score of each line of the page's tables."""
    found: list[tuple[str, str, str, float]] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        if len(cells) == 5 and cells[3] in ("0", "1"):
            task, answer, expected = (re.sub(r"^(`{1,4})(.*)\1$", r"\2", cell, count=1) for cell in (cells[0][2:], *cells[1:3]))
            found.append((task, answer.removesuffix("``` ").replace("⏎", "\n"), expected, float(cells[3])))
    return found
