"""Files and functions of the sources stay small, and class names are unique."""

import ast

from .blocks import ROOT

SOURCES = sorted(ROOT.glob("src/**/*.py"))
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 700, 60


def large(path):
    """The places of a file that are too large."""
    text = path.read_text()
    if len(text.splitlines()) > MOST_LINES:
        yield f"{path} has more than {MOST_LINES} lines"
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION:
            yield f"{path}: {node.name} has more than {MOST_LINES_OF_A_FUNCTION} lines"


def test_code_is_in_small_parts():
    assert len(SOURCES) > 200
    assert not [fault for path in SOURCES for fault in large(path)]


def test_no_class_name_is_defined_twice():
    """A reader who searches for a class finds one."""
    places = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not {name: found for name, found in places.items() if len(found) > 1}
