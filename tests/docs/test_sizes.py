"""Files and functions of the sources stay small."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("src/**/*.py"))
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


def test_code_is_in_small_parts() -> None:
    assert len(SOURCES) > 200
    assert not [fault for path in SOURCES for fault in large(path)]
