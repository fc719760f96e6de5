"""The documentation site builds without a warning, and its reference is complete."""

import ast
import os
import pickle
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bs4 import BeautifulSoup
from fastapi.routing import APIRoute
from PIL import Image

from dlstep.cli import main
from dlstep.cli.main import COMMANDS
from dlstep.serve.http.app import create_app
from dlstep.serve.router.router import Router
from dlstep.serve.settings import ServeOptions

from .blocks import ROOT

DOCS = ROOT / "docs"
PACKAGES = ("dlstep", "dlstep.core", "dlstep.rules", "dlstep.strategies", "dlstep.testing", "dlstep.views")


def build(builder, folder):
    """Build the site as `make docs` does."""
    line = f"-m sphinx -q -n -W --keep-going -b {builder} -d {folder}/doctrees {DOCS} {folder}/site"
    command = [sys.executable, *line.split()]
    search = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": search})


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder of all pages, read and with resolved references, but not written as HTML."""
    folder = tmp_path_factory.mktemp("site")
    done = build("dummy", folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder / "doctrees"


@pytest.fixture(scope="module")
def domains(built):
    """Return what the reference describes, by domain."""
    assert (built / "index.doctree").exists()
    return pickle.loads((built / "environment.pickle").read_bytes()).domaindata


def public_names(package):
    """Yield the names that a package exports."""
    tree = ast.parse(Path(str(import_module(package).__file__)).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.asname == alias.name)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        for target in node.targets if isinstance(node, ast.Assign) else ():
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def places(package, name):
    """Return all full names of an exported value: `dlstep.core.add` is `dlstep.add` as well."""
    value = getattr(import_module(package), name)
    return {f"{each}.{name}" for each in PACKAGES if getattr(import_module(each), name, None) is value}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_lists_every_public_name(package, domains):
    listed = domains["py"]["objects"]
    names = [name for name in public_names(package) if not name.startswith("_")]
    assert len(names) >= 2
    assert not [name for name in names if not places(package, name) & listed.keys()]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_lists_every_option_that_help_shows(command, domains, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    shown = set(re.findall(r"^  (?:-h, )?(--[\w+]+)", capsys.readouterr().out.partition("\noptions:\n")[2], re.MULTILINE))
    listed = {flag for program, flag in domains["std"]["progoptions"] if program == f"dlstep-{command.replace(' ', '-')}"}
    page = {flag for _, flag in domains["std"]["progoptions"]}
    assert "--help" in shown & listed and shown <= page


def test_the_reference_lists_every_route(built):
    app = create_app(Router([], ServeOptions()), admin_keys=("admin",))
    routes = [each for each in app.routes if isinstance(each, APIRoute)]
    paths = {f"{method} {each.path_format}" for each in routes if each.include_in_schema for method in each.methods or ()}
    page = pickle.loads((built / "reference" / "http.doctree").read_bytes()).astext()
    assert len(paths) > 10 and not [path for path in paths if path not in page]


def test_the_pictures_show_the_first_page():
    page = (DOCS / "index.md").read_text()
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    for path in (DOCS / "site").glob("*.png"):
        with Image.open(path) as picture:
            shown = str(picture.info.get("code"))
        assert code in shown and output in shown, f"{path.name} shows an older page: run make site-pictures"


@pytest.mark.stress
def test_written_pages_load_nothing_from_the_network(tmp_path):
    done = build("html", tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    pages = {path: BeautifulSoup(path.read_text(), "html.parser") for path in (tmp_path / "site").rglob("*.html")}
    styles = [path.read_text() for path in (tmp_path / "site").rglob("*.css")]
    assert len(pages) > 50 and styles
    assert not [style for style in styles if re.search(r"url\(['\"]?(?:https?:)?//|@import", style)]
    for path, page in pages.items():
        loaded = [each["src"] for each in page.select("script[src], img[src]")] + [
            each["href"] for each in page.select("link[href]")
        ]
        for address in loaded:
            parts = urlsplit(str(address))
            assert not parts.scheme and not parts.netloc, f"{path.name} loads {address}"
