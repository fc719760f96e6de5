"""Codes of refusals: the table of the documentation, their statuses, and the exception that carries a refusal.

No module of the outer layers reads a message: they translate the field of a refusal, and branch by its code.
"""

import ast
import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

from dlstep.core import STATUS, Code, Refusal, Refused

ROOT = Path(__file__).parents[3]
SERVING = ROOT / "docs" / "serving.md"
SOURCES = ROOT / "src" / "dlstep"
LAYERS = ("serve", "batch", "cli")
# Attributes that hold the text of an error or of a refusal, and methods that look into a text.
MESSAGES = {"message", "error", "reason", "args", "msg"}
READING = {
    "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rpartition", "split", "splitlines",
    "startswith",
}  # fmt: skip


def test_the_documentation_lists_every_code_with_its_status():
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| (\d+) \| .+ \|$", SERVING.read_text(), re.MULTILINE)
    listed = [(code, int(status)) for codes, status in rows for code in re.findall("[a-z_]+", codes)]
    assert sorted(listed) == sorted(STATUS.items())
    assert STATUS.keys() == {*get_args(Code)}


def test_an_exception_of_another_process_carries_its_refusal():
    refusal = Refusal("pinned.3", "out_of_range", "must be below 3, got 3")
    error = pickle.loads(pickle.dumps(Refused(*refusal)))
    assert isinstance(error, ValueError) and error.refusal == refusal
    assert str(error) == str(refusal) == "pinned.3: must be below 3, got 3"
    assert str(Refusal("", "not_ready", "the model is loading")) == "the model is loading"


def test_a_refusal_cannot_be_changed():
    with pytest.raises(AttributeError):
        Refusal("seed", "missing", "give one").field = "n"


def reads(tree):
    """Yield the lines of a function, or of the rest of a module, that test, split or match the text of an error."""
    errors = MESSAGES | {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    errors |= {node.target.id for node in ast.walk(tree) if isinstance(node, ast.NamedExpr) and is_message(node.value, errors)}
    for node in ast.walk(tree):  # in order of lines: a name is assigned before it is read
        if isinstance(node, ast.Assign) and is_message(node.value, errors):
            errors |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in READING and is_message(value, errors):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=args) if any(
                is_message(arg, errors) for arg in args
            ):
                yield node.lineno
            case ast.Compare(comparators=values, ops=ops) if any(
                isinstance(op, ast.In | ast.NotIn) and is_message(value, errors) for op, value in zip(ops, values, strict=True)
            ):
                yield node.lineno


def is_message(node, errors):
    """Whether an expression is an error, its text, or a part of this text."""
    match node:
        case ast.Name(id=name):
            return name in errors
        case ast.Attribute(attr=name):
            return name in MESSAGES
        case ast.Call(func=ast.Name(id="str"), args=[value]):
            return is_message(value, errors)
        case ast.Subscript(value=value) | ast.FormattedValue(value=value) | ast.NamedExpr(value=value):
            return is_message(value, errors)
        case ast.JoinedStr(values=values):
            return any(is_message(value, errors) for value in values)
    return False


@pytest.mark.parametrize("layer", LAYERS)
def test_no_module_reads_a_message(layer):
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sorted((SOURCES / layer).rglob("*.py"))
        for line in reads(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "read",
    [
        "'no room' in str(error)",
        "str(error).startswith('the prompt')",
        "re.sub('a', 'b', str(error))",
        "error.refusal.message.split(':')",
        "error.args[0].removeprefix('request 0: ')",
        "[name for name in names if name in pending.error]",
        "(text := str(error)).partition(':')",
        "shown = f'{error}'; shown.splitlines()",
        "re.search('a', message)",
    ],
)
def test_code_that_reads_a_message_is_found(read):
    assert [*reads(ast.parse(f"try:\n    f()\nexcept ValueError as error:\n    {read}\n"))] == [4]
