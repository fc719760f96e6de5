"""Evaluation: tasks, scorers, a resumable runner, figures and reports; see `docs/evaluation.md`."""

from typing import TYPE_CHECKING

from .checkpoint import EvalRun as EvalRun, read as read
from .options import EvalOptions as EvalOptions

if TYPE_CHECKING:
    from ..llm import LLM


def evaluate_with(llm: "LLM", options: EvalOptions) -> EvalRun:
    """Answer and score problems with a loaded LLM. Return the run that `options.out` then contains.

    Raises ValueError for options, files or a folder that cannot be used.
    """
    from .answerer_pool import Answering
    from .items import read_documents
    from .runner import evaluate

    evaluate(Answering(llm.engine), options, read_documents(options))
    return read(options.out)
