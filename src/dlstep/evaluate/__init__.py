"""Evaluation: tasks, a resumable runner, figures, comparisons and reports; see `docs/evaluation.md`."""

from typing import TYPE_CHECKING

from .checkpoint import EvalRun as EvalRun, read as read
from .options import EvalOptions as EvalOptions

if TYPE_CHECKING:
    from ..llm import LLM


def evaluate_with(llm: "LLM", options: EvalOptions) -> EvalRun:
    """Answer and score problems with a loaded LLM. Return the run that `options.out` then contains.

    Raises ValueError for options, files or a folder that cannot be used.
    """
    from .runner import evaluate

    return evaluate(llm.engine, options)
