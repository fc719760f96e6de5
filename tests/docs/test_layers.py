"""A package reads files of its own row and the rows below only: `lint-imports` sees imports, this test paths."""

import ast
import tomllib
from pathlib import Path

import pytest

from .blocks import ROOT

PACKAGE = ROOT / "src" / "dlstep"
SEES_ALL = {"batch/facts.py", "core/errors.py"}  # files of packages below it; names of frames, no files


def rows():
    """The row of each package and module of `dlstep`, from top to bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return {name: row for row, names in enumerate(layers) for name in names.split(" : ")}


def paths(node, file):
    """The paths that the code of a file derives from its own."""
    try:
        path = eval(compile(ast.Expression(node), "", "eval"), {"Path": Path, "__file__": str(file), "__builtins__": {}})  # pyright: ignore
    except Exception:  # noqa: BLE001 - most code is no path
        path = None
    if isinstance(path, Path) and "__file__" in ast.unparse(node):
        yield path
    else:
        for child in ast.iter_child_nodes(node):
            yield from paths(child, file)


def arrows_up(name, source):
    """The paths of a module that lead to a package above its own, or out of all packages."""
    known, found = rows(), []
    own = Path(name).parts[0].removesuffix(".py")
    for path in paths(ast.parse(source), PACKAGE / name):
        place = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ".."
        other = place.partition("/")[0].removesuffix(".py")
        if own != other and known.get(other, -1) < known.get(own, -1) and not (other == "." and name in SEES_ALL):
            found.append(f"{name} reads {place}")
    return found


def test_no_package_reads_files_of_one_above_it():
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert [arrow for name, source in sources.items() for arrow in arrows_up(name, source)] == []
    assert not [name for name, source in sources.items() if "importlib.resources" in source or "get_data(" in source]


@pytest.mark.parametrize(
    "name, expression, arrow",
    [
        ("views/page.py", "Path(__file__).parents[1] / 'serve' / 'page'", ["views/page.py reads serve/page"]),
        ("core/errors.py", "Path(__file__).parent.parent.joinpath('testing')", ["core/errors.py reads testing"]),
        ("text/words.py", "f'{Path(__file__).parents[1]}'", ["text/words.py reads ."]),
        ("text/words.py", "Path(__file__).parents[2]", ["text/words.py reads .."]),
        ("serve/http/app.py", "str(Path(__file__).parents[2] / 'views' / 'web')", []),
        ("text/words.py", "Path(__file__).with_name('words.json')", []),
    ],
)
def test_a_path_to_a_package_above_is_found(name, expression, arrow):
    assert arrows_up(name, f"PATH = {expression}") == arrow
