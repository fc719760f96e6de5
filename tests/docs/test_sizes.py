"""Files and functions stay small, and docstrings say what they are about first."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("src/**/*.py"))
OTHERS = [path for folder in ("tests", "training", "docs") for path in sorted((ROOT / folder).glob("**/*.py"))]
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 60


def large(path: Path) -> Iterator[str]:
    """The places of a file that are too large."""
    text = path.read_text(encoding="utf-8")
    if len(text.splitlines()) > MOST_LINES:
        yield f"{path} has more than {MOST_LINES} lines"
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION:
            yield f"{path}: {node.name} has more than {MOST_LINES_OF_A_FUNCTION} lines"


def vague(path: Path) -> Iterator[str]:
    """The docstrings of a file that begin with a question."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        if (ast.get_docstring(node) or "").startswith("What "):
            yield f"{path}: the docstring of {getattr(node, 'name', 'the module')} begins with a question"


def test_code_is_in_small_parts() -> None:
    assert len(SOURCES) > 200
    assert not [fault for path in SOURCES for fault in large(path)]


def test_docstrings_say_what_they_are_about() -> None:
    assert len(OTHERS) > 200
    assert not [fault for path in SOURCES + OTHERS for fault in vague(path)]


def test_modules_that_tests_import_by_name_have_different_names() -> None:
    """Of two files of one name on pytest's path, all tests of a process import whichever was imported first."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    folders = {ROOT / folder for folder in options["pythonpath"]} | {path.parent for path in ROOT.glob("tests/*/test_*.py")}
    names = Counter(path.stem for folder in folders for path in folder.glob("*.py") if path.stem != "conftest")
    assert len(names) > 200
    assert not [name for name, times in names.items() if times > 1]
