"""The tests mirror the sources: `src/dlstep/core/commit.py`, `tests/unit/core/test_commit.py`."""

import ast
import tomllib
from pathlib import Path

from .blocks import ROOT

TABLE = "tests/tested_elsewhere.toml"
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def defines_something(path):
    """Return whether a file defines a function or a class."""
    return any(isinstance(node, DEFINITIONS) for node in ast.parse(path.read_text()).body)


def own_test(module):
    """Return the path of the test file of a module of `src`; leading underscores are dropped."""
    *folders, name = Path(module.removeprefix("dlstep/")).with_suffix("").parts
    return "/".join(["tests", "unit", *folders, f"test_{name.strip('_')}.py"])


def test_every_module_has_a_test_of_its_name_or_an_entry():
    listed = tomllib.loads((ROOT / TABLE).read_text())
    modules = {
        path.relative_to(ROOT / "src").as_posix(): path
        for path in ROOT.glob("src/**/*.py")
        if path.name != "__init__.py" or defines_something(path)
    }
    faults = []
    for module in sorted(modules.keys() | listed.keys()):
        own = own_test(module)
        if module not in modules:
            faults.append(f"src/{module} does not exist, or is an __init__.py without definitions: remove its entry")
        elif (ROOT / own).is_file():
            faults += [f"src/{module} has {own}: remove its entry"] if module in listed else []
        elif not listed.get(module):
            faults.append(f"src/{module}: add {own}, or an entry with the tests that fail if the module is wrong")
    for module, tests in listed.items():
        faults += [f"src/{module}: {test} does not exist: correct its path" for test in tests if not (ROOT / test).is_file()]
    if [*listed] != sorted(listed):
        faults.append("the entries are not in order: sort them by module")
    assert not faults, f"{TABLE} disagrees with src/ and tests/:\n" + "\n".join(faults)
