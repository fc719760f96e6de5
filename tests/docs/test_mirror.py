"""The tests mirror the sources: `src/dlstep/core/finish.py`, `tests/unit/core/test_finish.py`."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads((ROOT / "tests" / "unit" / "tested_elsewhere.toml").read_text(encoding="utf-8"))
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def modules() -> dict[str, Path]:
    """Names of the modules that define something, without `dlstep.`, and the path of the test of each."""
    found: dict[str, Path] = {}
    for path in sorted(ROOT.glob("src/**/*.py")):
        if any(isinstance(node, DEFINITIONS) for node in ast.parse(path.read_text(encoding="utf-8")).body):
            *folders, name = path.relative_to(ROOT / "src").with_suffix("").parts
            inner = folders[1:] if folders[:1] == ["dlstep"] else folders
            found[".".join([*inner, name])] = ROOT.joinpath("tests", "unit", *inner, f"test_{name.strip('_')}.py")
    return found


def test_every_module_has_its_test_at_the_mirrored_path_or_is_listed() -> None:
    missing = {name for name, test in modules().items() if not test.is_file()}
    listed = TABLE["elsewhere"].keys() | TABLE["untested"].keys()
    assert missing == listed, f"not listed: {sorted(missing - listed)}; listed in vain: {sorted(listed - missing)}"


def test_files_that_test_modules_elsewhere_exist() -> None:
    assert not [file for file in TABLE["elsewhere"].values() if not (ROOT / "tests" / file).is_file()]
    assert not TABLE["elsewhere"].keys() & TABLE["untested"].keys()
