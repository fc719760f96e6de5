"""A module reads the files beside it and below only: `lint-imports` sees imports, this test paths."""

import re

from .blocks import ROOT

PACKAGE = ROOT / "src" / "dlstep"
SEES_ALL = {"batch/facts.py", "core/errors.py"}  # files of packages below it; names of frames, no files
OWN = re.compile(r"(?<![\w.\"'])__file__|importlib\.resources|get_data\(")
BELOW = re.compile(r"Path\(__file__\)\.(with_name\(['\"][\w.]+['\"]\)|parent / ['\"]\w+['\"])")


def faults(source):
    """The lines that derive a path from that of their module, but not one of a file beside it or below."""
    return [line for line in source.splitlines() if OWN.search(line) and not BELOW.search(line)]


def test_no_module_reads_files_of_other_packages():
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert {name for name, source in sources.items() if faults(source)} == SEES_ALL
