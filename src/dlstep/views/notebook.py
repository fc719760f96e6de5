"""Pictures in notebooks: IPython learns how to draw states, plans, traces and differences. The core itself has no pictures."""

import sys
import warnings
from typing import Any

from ..core import Plan, Samples, State, Trace
from .diff_html import state_diff_html, trace_diff_html
from .differences import StateDiff, TraceDiff
from .html import plan_html, state_html, trace_html

DRAWN = {
    State: state_html,
    Plan: plan_html,
    Trace: trace_html,
    StateDiff: state_diff_html,
    TraceDiff: trace_diff_html,
}
SHORT = (State, Plan, Samples, Trace, StateDiff, TraceDiff)  # shown as `str` where there are no pictures


def register() -> None:
    """Let the running IPython draw values of the core as HTML, or write them in few lines; nothing where none runs."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    # tqdm, which transformers imports, asks every notebook for widgets; no bar of ours needs them.
    warnings.filterwarnings("ignore", message="IProgress not found")
    formatters = shell.display_formatter.formatters
    for kind, draw in DRAWN.items():
        formatters["text/html"].for_type(kind, draw)
    for kind in SHORT:
        formatters["text/plain"].for_type(kind, write)


def write(value: object, printer: Any, cycle: bool) -> None:
    """Print a value as `str` does; values of the core hold no cycles."""
    del cycle
    printer.text(str(value))
