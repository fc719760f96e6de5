"""Pictures in notebooks: IPython learns how to draw states, plans, traces and differences. The core itself has no pictures."""

import sys

from ..core import Plan, State, StateDiff, Trace, TraceDiff
from .diff_html import state_diff_html, trace_diff_html
from .html import plan_html, state_html, trace_html


def register() -> None:
    """Let the running IPython draw values of the core as HTML; does nothing where none runs."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(State, state_html)
    html.for_type(Plan, plan_html)
    html.for_type(Trace, trace_html)
    html.for_type(StateDiff, state_diff_html)
    html.for_type(TraceDiff, trace_diff_html)
