"""Differences of states and traces as HTML for notebooks."""

from html import escape

from ..core.spec import Spec
from .differences import Kind, RequestDiff, StateDiff, TraceDiff, grouped, run_words
from .html import BOX, note

# Dark on light, and distinct from the colours of phases.
KIND_STYLES: dict[Kind, str] = {
    "unmasked": "background:#c3e6cb;color:#111",
    "changed": "background:#f5c6cb;color:#111",
    "remasked": "background:#d6d8db;color:#111;text-decoration:line-through",
}
MOST_REQUESTS, MOST_RUNS = 32, 60


def _chip(style: str, text: str) -> str:
    return f'<span style="{style};padding:0 4px;margin-right:4px;white-space:pre-wrap">{escape(text)}</span>'


def request_diff_html(request: RequestDiff, spec: Spec) -> str:
    """Return the HTML of a request's difference: changed counts, and runs coloured by kind."""
    runs = list(grouped(request.positions))
    chips = "".join(_chip(KIND_STYLES[run[0].kind], run_words(run, spec)) for run in runs[:MOST_RUNS])
    rest = f"and {len(runs) - MOST_RUNS} more" if len(runs) > MOST_RUNS else ""
    return f"{note(request.title + ', '.join(request.parts))}<div>{chips}{rest}</div>"


def _body(diff: StateDiff) -> str:
    shown = "".join(request_diff_html(request, diff.spec) for request in diff.requests[:MOST_REQUESTS])
    left_out = len(diff.requests) - MOST_REQUESTS
    more = note(f"{left_out} more requests differ") if left_out > 0 else ""
    return f"{note(', '.join(diff.parts))}{shown}{more}" if diff else note("no difference")


def state_diff_html(diff: StateDiff) -> str:
    """Return the HTML of the difference of two states, request by request.

    Args:
        diff: The difference.
    """
    return f'<div style="{BOX}"><b>difference of two states</b>{_body(diff)}</div>'


def trace_diff_html(diff: TraceDiff) -> str:
    """Return the HTML of a trace difference: the first different event, and the states after it.

    Args:
        diff: The difference.
    """
    if not diff:
        return f'<div style="{BOX}"><b>difference of two traces</b>{note(str(diff))}</div>'
    events = (("old", diff.old), ("new", diff.new)) if diff.old or diff.new else ()
    sides = "".join(f"<div>{name}: {escape(text or 'ended')}</div>" for name, text in events)
    there = f"<div><b>after it</b></div>{_body(diff.there)}<div><b>at the end</b></div>{_body(diff.end)}"
    return f'<div style="{BOX}"><b>difference of two traces</b>{note(diff.place)}{sides}{there}</div>'
