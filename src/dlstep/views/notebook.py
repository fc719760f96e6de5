"""Pictures in notebooks: IPython learns how to draw states, plans and traces. The core itself knows of no pictures."""

import sys

from ..core import Plan, State, Trace
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
