"""Every notebook runs from its first cell to its last, and is stored with what it shows."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

# How many problems the strategies are measured on; tests run the notebooks with fewer.
MEASURED = "dataset_limit=32"

MACHINE = re.compile(
    r"/(home|root|work|tmp|usr|opt|Users|mnt|var|private)/|[A-Z]:\\\\|site-packages|Traceback|Warning|ipykernel_"
)


def outputs(notebook):
    """The outputs of all cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def texts(cell):
    """What a cell shows in a text console."""
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", ()))


def test_the_first_notebook_shows_a_slider():
    assert "dlstep-steps" in NOTEBOOKS[0].read_text()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stored(path):
    """`make notebooks` stores them, so that a notebook shows something where nobody runs it."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run them anew: make notebooks"
    shown = outputs(notebook)
    assert {output.output_type for output in shown} <= {"stream", "display_data", "execute_result"}
    assert not [output for output in shown if output.get("name") == "stderr"]
    assert any("text/html" in output.get("data", {}) for output in shown)
    unseen = [data for output in shown if set(data := output.get("data", {})) == {"text/plain"}]
    assert not [data for data in unseen if data["text/plain"].startswith("<")], "a picture is shown as its name"
    assert path.stat().st_size < 1 << 20


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_name_no_machine(path):
    notebook = nbformat.read(path, as_version=4)
    text = json.dumps([{name: data for name, data in output.items() if name != "metadata"} for output in outputs(notebook)])
    text = re.sub(r'"image/png": "[^"]*"', "", text)
    assert MACHINE.search(text) is None
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}


def _marks(path):
    """All run by `make stress`, the first one by `make test`."""
    return () if path == NOTEBOOKS[0] else (pytest.mark.stress,)


@pytest.mark.parametrize("path", [pytest.param(path, marks=_marks(path), id=path.stem) for path in NOTEBOOKS])
@pytest.mark.parametrize("measured", [2, pytest.param(32, marks=pytest.mark.stress)])
def test_notebook_runs(path, measured):
    notebook = nbformat.read(path, as_version=4)
    before = [texts(cell) for cell in notebook.cells]
    same = measured == 32 or not any(MEASURED in cell.source for cell in notebook.cells)
    for cell in notebook.cells:
        cell.source = cell.source.replace(MEASURED, MEASURED.replace("32", str(measured)))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    shown = outputs(notebook)
    assert not [output for output in shown if output.get("name") == "stderr"], "a warning is shown"
    assert any("text/html" in output.get("data", {}) for output in shown), "no state is drawn"
    assert not same or [texts(cell) for cell in notebook.cells] == before, "the stored outputs are old: make notebooks"
