"""Run every notebook from its first cell to its last and store what the cells show: `make notebooks`.

A notebook that fails is left as it was. Nothing of the machine is stored: no times, no versions, no warnings.
"""

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
TIMEOUT_S = 600


def stored(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of this run."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=TIMEOUT_S, record_timing=False, resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main() -> None:
    """Store the outputs of all notebooks."""
    os.environ["OMP_NUM_THREADS"] = "1"  # sums in one order: the same outputs again
    for path in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(stored(path), path)
        print(f"{path.name}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
