"""States, plans, traces and differences as self-contained, escaped HTML for notebooks.

Only `steps_html` contains a script, for its slider.
"""

import json
import sys
import warnings
import zlib
from base64 import b64encode
from collections import deque
from collections.abc import Iterable
from html import escape
from typing import Any

from ..core.options import Options, options_of
from ..core.plan import Plan, Samples
from ..core.sequence import SequenceState
from ..core.spec import Spec
from ..core.state import State
from ..core.trace import Trace
from ..text.output import Output
from ..text.words import counted, piece
from .cells import (
    EventRow,
    Phase,
    PictureCell,
    Use,
    cells,
    event_rows,
    in_order,
    page_cells,
    status,
)
from .diffing import Kind, ValueDiff
from .frames import recording
from .lines import listed, more
from .page import script_of, source
from .texts import counts, plan_head, text_of

COLOURS = {
    "prompt": "#e3e3e3",
    "final": "#c3e6cb",
    "held": "#d3c4f5",
    "open": "#fde9b5",
    "draft": "#f7f7ff",
    "masked": "#ffffff",
    "void": "#f4f4f4",
    "owned": "#9fc5e8",
    "shared": "#9a86cc",
    "cached": "#f0a860",
    "free": "#ffffff",
}
MEANINGS: dict[Phase | Use, str] = {
    "prompt": "a token of the prompt",
    "final": "a token that can no longer change",
    "held": "a token that can no longer change, in a block that is not sealed",
    "open": "an unmasked token that may still change",
    "draft": "a masked position, fed as the token shown",
    "masked": "a masked position",
    "void": "a position after the end of the answer",
    "owned": "a page of one request",
    "shared": "a page of several requests",
    "cached": "a page without a request, kept for prefix caching",
    "free": "a page that was used before and is free",
}
# Dark on light, and distinct from the colours of phases.
KIND_STYLES: dict[Kind, str] = {
    "unmasked": "background:#c3e6cb;color:#111",
    "changed": "background:#f5c6cb;color:#111",
    "remasked": "background:#d6d8db;color:#111;text-decoration:line-through",
    "old": "display:block",
    "new": "display:block",
}
BOX = "font:13px/1.7 ui-monospace,monospace;color:#111;background:#fafafa;border:1px solid #ccc;padding:8px;margin:4px 0"
# Display limits: of longer lists, only the end is shown (of pages, the beginning).
MOST_CELLS, MOST_PAGES, MOST_SEQUENCES, MOST_EVENTS, MOST_RUNS = 600, 400, 32, 200, 60
LARGEST = 1 << 23  # bytes of JSON of `steps_html`; more would make a notebook slow


def filled(name: str) -> str:
    """Return the style of dark text on the colour of a phase or use."""
    return f"background:{COLOURS[name]};color:#111"


def _span(style: str, title: str, text: str) -> str:
    return f'<span style="{style}" title="{escape(title)}">{escape(text)}</span>'


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    # Set both colours, because dark notebook themes style table rows.
    cell = 'style="padding:1px 8px;text-align:left;border-bottom:1px solid #ddd;background:#fafafa;color:#111"'
    top = "".join(f"<th {cell}>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td {cell}>{escape(str(value))}</td>" for value in row) + "</tr>" for row in rows)
    return f'<table style="border-collapse:collapse"><tr>{top}</tr>{body}</table>'


def note(text: str) -> str:
    """Return a line of grey text."""
    return f'<div style="color:#666">{escape(text)}</div>'


def cell_html(cell: PictureCell, spec: Spec) -> str:
    """Return a position: the background shows its phase, the underline its probability (red: 0)."""
    line = "transparent" if cell.token is None or cell.phase == "draft" else f"hsl({round(120 * cell.probability)},75%,45%)"
    style = f"{filled(cell.phase)};border-bottom:3px solid {line};padding:0 1px;margin-right:1px;white-space:pre-wrap"
    title = f"position {cell.position}, {cell.phase}"
    if cell.phase not in ("draft", "masked", "void"):
        title += f", token {cell.token}, probability {cell.probability:.3f}"
    elif cell.token is not None:
        title += f", fed as token {cell.token}"
    return _span(style, title, piece(spec, cell.token))


def sequence_html(sequence: SequenceState, state: State) -> str:
    """Return a request: its counts, and its positions coloured by phase and confidence.

    Args:
        sequence: The sequence of the request.
        state: The state that holds it.
    """
    pictured = cells(sequence, state.config.spec)
    shown = pictured[-MOST_CELLS:]
    passes = f"{counted(sequence.steps, 'step')}, {counted(sequence.nfe, 'forward pass')}"
    now = status(sequence, sequence in state.waiting)
    head = f"request {sequence.request.id}, {now}: final {sequence.progress.final}, stored {sequence.storage.stored}, {passes}"
    if sequence.error:
        head += f". {sequence.error}"
    before = f"[{len(pictured) - len(shown)} positions before] " if len(pictured) > len(shown) else ""
    return f"{note(head)}<div>{before}{''.join(cell_html(cell, state.config.spec) for cell in shown)}</div>"


def page_map_html(state: State) -> str:
    """Return the pages as boxes coloured by use. Pages never allocated are only counted.

    Args:
        state: The state to show.
    """
    shown, config = page_cells(state), state.config
    style = "display:inline-block;width:11px;height:11px;margin:1px;border:1px solid #999;background:"
    boxes = ""
    for cell in shown[:MOST_PAGES]:
        held = f" by {', '.join(map(str, cell.holders))}" if cell.holders else ""
        boxes += _span(f"{style}{COLOURS[cell.use]}", f"page {cell.page}, {cell.use}{held}", "")
    rest = f" and {len(shown) - MOST_PAGES} more" if len(shown) > MOST_PAGES else ""
    head = f"{config.num_pages} pages of {config.page_size} positions, {config.num_pages - len(shown)} never used"
    return f"{note(head)}<div>{boxes}{rest}</div>"


def _legend(state: State, shown: Iterable[SequenceState]) -> str:
    """Return the colours of the phases and uses that occur, with their meanings as titles."""
    used = {cell.phase for sequence in shown for cell in cells(sequence, state.config.spec)}
    used |= {cell.use for cell in page_cells(state)}
    style = "border:1px solid #ccc;padding:0 4px"
    return " ".join(_span(f"{filled(name)};{style}", text, name) for name, text in MEANINGS.items() if name in used)


def state_html(state: State) -> str:
    """Return a state: every request with its tokens, and the page map.

    Args:
        state: The state to show.
    """
    requests = [sequence for sequence, _ in in_order(state)]
    shown = requests[-MOST_SEQUENCES:]
    body = _left_out(len(requests) - len(shown), "request") + "".join(sequence_html(each, state) for each in shown)
    strategy = state.strategy
    names = [f"rule {type(value).__name__}" for value in options_of(strategy).values() if isinstance(value, Options)]
    used = _span("", repr(strategy), ", ".join([f"strategy {type(strategy).__name__}", *names]))
    head = f"<b>state at step {state.step}</b>: {counts(state)}, {used}"
    return f'<div style="{BOX}"><div>{head}</div>{body}{page_map_html(state)}<div>{_legend(state, shown)}</div></div>'


def _left_out(number: int, noun: str) -> str:
    return note(f"{counted(number, f'earlier {noun}')} not shown") if number else ""


def plan_html(plan: Plan) -> str:
    """Return a plan: the fed and sampled positions of each span, and the changes of pages.

    Args:
        plan: The plan to show.
    """
    pages = {grant.seq_id: grant.pages for grant in plan.grants}
    columns = ("request", "positions", "query only", "final", "window", "sampled", "sees below", "new pages")
    rows = [
        (
            span.who.id,
            f"{span.rows.start} to {span.rows.stop - 1}",
            span.rows.query_only,
            span.rows.final_rows,
            len(span.rows.tokens) - span.rows.query_only - span.rows.final_rows,
            len(span.wanted.sampled),
            span.rows.end,
            ", ".join(map(str, pages.get(span.who.seq_id, ()))) or "none",
        )
        for span in plan.spans
    ]
    changes = (
        ("released", plan.releases),
        ("preempted", plan.preemptions),
        ("admitted", [f"{each.seq_id} with {len(each.shared)} shared pages" for each in plan.admissions]),
    )
    text = "; ".join(f"{name}: {', '.join(map(str, values))}" for name, values in changes if values)
    return f'<div style="{BOX}"><b>{plan_head(plan)}</b>{_table(columns, rows)}{note(text) if text else ""}</div>'


def trace_html(trace: Trace) -> str:
    """Return a trace as a table: the effect of each event, and the counts after it.

    Args:
        trace: The trace to show.
    """
    columns = [name.replace("_", " ") for name in EventRow._fields]
    rows = deque(event_rows(trace), MOST_EVENTS)
    table = _table(columns, ((*row[:3], listed(row.requests), *row[4:]) for row in rows))
    more = _left_out(max(0, len(trace.events) - MOST_EVENTS), "event")
    return f'<div style="{BOX}"><b>{text_of(trace)}</b>{more}{table}</div>'


def diff_html(diff: ValueDiff) -> str:
    """Return the difference of two states or traces: changed counts, and runs of positions coloured by kind.

    Args:
        diff: The difference.
    """
    return f'<div style="{BOX}"><b>difference</b>{_difference(diff)}</div>'


def _difference(diff: ValueDiff) -> str:
    if not diff:
        return note(str(diff))
    style = "padding:0 4px;margin-right:4px;white-space:pre-wrap"
    runs = "".join(_span(f"{KIND_STYLES[run.kind]};{style}", run.kind, run.text) for run in diff.runs[:MOST_RUNS])
    inner = "".join(map(_difference, diff.inner[:MOST_SEQUENCES]))
    rest = more(len(diff.runs) - MOST_RUNS, "run of positions") + more(len(diff.inner) - MOST_SEQUENCES, "request")
    return f"{note(diff.head + ', '.join(diff.parts))}<div>{runs}</div>{inner}{''.join(map(note, rest))}"


def steps_html(trace: Trace) -> str:
    """Return the states of a trace as HTML in which a slider selects the step.

    The HTML is ASCII. It contains the last state as static HTML, for viewers that run no scripts. A page
    can contain several of these texts. For a long trace, only the last state is shown.

    Args:
        trace: The trace of a decode.
    """
    *_, last = trace.states()
    runs = recording(trace)["runs"][-MOST_SEQUENCES:]
    style = source("shared.css") + source("steps.css")
    needed = [{name: run[name] for name in ("head", "frames", "steps")} for run in runs]
    data = {"style": style, "first": trace.first.step, "last": last.step, "runs": needed}
    packed = json.dumps(data, separators=(",", ":")).encode()
    static = state_html(last).encode("ascii", "xmlcharrefreplace").decode()
    if len(packed) > LARGEST:
        long = f"These {counted(last.step, 'step')} are too long for a slider: save the trace, and run dlstep view FILE"
        return f"{note(long)}{static}"
    steps = b64encode(zlib.compress(packed, 9)).decode()
    # The script is wrapped in a function, because a page may contain it several times.
    script = f'(() => {{\n"use strict";\n{script_of("steps.js")}}})();'.encode("ascii", "backslashreplace").decode()
    return f'<div class="dlstep-steps" data-steps="{steps}">{static}</div>\n<script>{script}</script>'


DRAWN = {
    State: state_html,
    Plan: plan_html,
    Trace: trace_html,
    ValueDiff: diff_html,
}
SHORT = (State, Plan, Samples, Trace, ValueDiff, Output)  # shown as `str` in text consoles


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
    printer.text(str(value))
