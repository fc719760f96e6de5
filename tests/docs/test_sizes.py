"""Files and functions stay small, and docstrings say what they are about first."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = sorted(Path(__file__).parents[2].glob("src/**/*.py"))
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 60
HASHED = "_lower_tile"  # its text is part of a compiled kernel's key


def faults(path: Path) -> Iterator[str]:
    """The places of a file that are too large or vague."""
    text = path.read_text(encoding="utf-8")
    if len(text.splitlines()) > MOST_LINES:
        yield f"{path} has more than {MOST_LINES} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION:
                yield f"{path}: {node.name} has more than {MOST_LINES_OF_A_FUNCTION} lines"
        elif not isinstance(node, ast.ClassDef | ast.Module):
            continue
        name = getattr(node, "name", "the module")
        if (ast.get_docstring(node) or "").startswith("What ") and name != HASHED:
            yield f"{path}: the docstring of {name} begins with a question"


def test_code_is_in_small_parts_that_say_what_they_are() -> None:
    assert len(SOURCES) > 200
    assert not [fault for path in SOURCES for fault in faults(path)]
