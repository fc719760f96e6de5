"""A missing optional package is reported by one sentence with the line that installs it, wherever it is needed."""

import ast
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from dlstep import LLM
from dlstep.cli import main
from dlstep.cli.main import COMMANDS
from dlstep.extras import EXTRAS
from dlstep.views import entropy_picture

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Modules that come with a module of an extra, or with a package that is always installed.
COMES_WITH = {
    "h11": "uvicorn", "markupsafe": "jinja2", "pydantic": "fastapi", "pydantic_core": "fastapi", "starlette": "fastapi",
    "sympy": "math_verify", "typing_extensions": "fastapi",
}  # fmt: skip
NAMED_UNLIKE_THEIR_PACKAGE = {"yaml": "pyyaml", "rpds": "rpds-py"}
# An extra, and a command or an option that needs it.
USERS = [
    ("serve", "dlstep serve", ["serve"]),
    ("serve", "dlstep batch", ["batch", "{in}", "{out}"]),
    ("ray", "dlstep batch --ray", ["batch", "{in}", "{out}", "--ray", "local"]),
    ("eval", "task gsm8k", ["eval", "--tasks", "gsm8k", "--data", "{data}", "--out", "{out}", "--dataset_limit", "1"]),
    ("notebook", "--plot", ["compare", "--plot", "{out}"]),
    ("laws", "dlstep laws", ["laws", "threshold"]),
    ("structured", "json_schema", ["generate", "a", "--json_schema", "{{}}"]),
    ("completion", "--print_completion", ["--print_completion", "bash"]),
    ("lora", "lora_path", ["generate", "a", "--lora_path", "{data}"]),
]


def imports(path):
    """The top-level names of all absolute imports of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def name_of(requirement):
    """The package of a requirement."""
    return requirement.split(";")[0].split("[")[0].split("=")[0].strip("<>=!~ ").lower()


def test_every_imported_package_is_required_or_in_an_extra():
    required = {name_of(requirement) for requirement in PROJECT["dependencies"]} | {"dlstep", "dlstep-kernels"}
    optional = {module for modules in EXTRAS.values() for module in modules}
    found = {COMES_WITH.get(name, name) for path in ROOT.glob("src/**/*.py") for name in imports(path)}
    found -= {*sys.stdlib_module_names}
    unknown = {
        name for name in found - optional if NAMED_UNLIKE_THEIR_PACKAGE.get(name, name.replace("_", "-")) not in required
    }
    assert not unknown, f"{unknown}: add them to pyproject.toml and, if they are optional, to EXTRAS"
    assert optional - found == {"antlr4", "math_verify", "pytest_timeout"}, "lm_eval's tasks and pytest import these"


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_installs_its_packages(extra):
    listed = {name_of(requirement): requirement for requirement in PROJECT["optional-dependencies"][extra]}
    for package in EXTRAS[extra].values():
        name, _, version = package.partition(" ")
        assert version in listed[name]


@pytest.mark.full
@pytest.mark.parametrize("extra, user, arguments", USERS, ids=[" ".join(case[2][:4]) for case in USERS])
def test_a_command_names_the_extra_that_it_lacks(extra, user, arguments, tmp_path, monkeypatch, capsys):
    (tmp_path / "in.jsonl").touch()
    (tmp_path / "MATH500.json").write_text('[{"question": "1+1", "ground_truth_answer": "2"}]')
    places = {"in": tmp_path / "in.jsonl", "data": tmp_path, "out": tmp_path / "out.svg"}
    arguments = [argument.format_map(places) for argument in arguments]
    for module in EXTRAS[extra]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            lacking = [package for name, package in EXTRAS[extra].items() if find_spec(name) is None]
            assert main(arguments) == 2
        assert capsys.readouterr().err.endswith(f"{user} needs {' and '.join(lacking)}: pip install 'dlstep[{extra}]'\n")
    assert not (tmp_path / "out.svg").exists()


def test_the_python_interface_names_the_extra_that_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match=r"lora_path needs peft: pip install 'dlstep\[lora\]'"):
        LLM(lora_path=str(tmp_path))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    row = {"step": 0, "request": 0, "offset": 0, "layer": 1, "token_id": 1, "text": "a", "entropy": 0.0, "sampled": 1}
    with pytest.raises(ValueError, match=r"a picture of observations needs matplotlib: pip install 'dlstep\[notebook\]'"):
        entropy_picture([row])


def test_every_help_is_shown_without_any_extra():
    missing = [
        *{module for modules in EXTRAS.values() for module in modules},
        *(COMES_WITH.keys() - {"markupsafe", "typing_extensions"}),
    ]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from contextlib import suppress
from dlstep.cli.main import parsed
for command in {[*COMMANDS]!r}:
    with suppress(SystemExit):
        parsed([*command.split(), "--help"])
print("all", len({[*COMMANDS]!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"all {len(COMMANDS)}\n") and done.stdout.count("usage:") == len(COMMANDS)
