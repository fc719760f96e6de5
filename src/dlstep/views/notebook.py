"""Registration of IPython formatters for states, plans, traces, differences and outputs."""

import sys
import warnings
from typing import Any

from ..core import Plan, Samples, State, Trace
from ..text.output import Output
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
SHORT = (State, Plan, Samples, Trace, StateDiff, TraceDiff, Output)  # shown as `str` in text consoles


def register() -> None:
    """Register HTML and short text formatters with the running IPython, if there is one."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    # tqdm, which transformers imports, warns about missing widgets, which dlstep does not need.
    warnings.filterwarnings("ignore", message="IProgress not found")
    formatters = shell.display_formatter.formatters
    for kind, draw in DRAWN.items():
        formatters["text/html"].for_type(kind, draw)
    for kind in SHORT:
        formatters["text/plain"].for_type(kind, write)


def write(value: object, printer: Any, cycle: bool) -> None:
    """Print a value with `str`. Values of the core contain no cycles."""
    del cycle
    printer.text(str(value))
