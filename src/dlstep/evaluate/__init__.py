"""Evaluation: tasks, scorers, a resumable runner, figures and reports, defined in
`docs/evaluation.md`."""

from pathlib import Path
from typing import TYPE_CHECKING

from .checkpoint import Run as Run, read as read_folder
from .options import EvalOptions as EvalOptions

if TYPE_CHECKING:
    from ..llm import LLM


def evaluate_with(llm: "LLM", options: EvalOptions) -> Run:
    """Answer and score the problems with a loaded LLM, and return the run that `options.out` then contains.

    Raises ValueError for options, files or a folder that cannot be used.
    """
    from .crews import Answering
    from .items import read_documents
    from .runner import evaluate

    evaluate(Answering(llm.engine), options, read_documents(options))
    return read(options.out)


def read(folder: str | Path) -> Run:
    """Return the run in a folder, complete or not. Raises ValueError if there is none."""
    return read_folder(Path(folder))
