"""States as HTML for notebooks: one in colour, and those of a trace with a slider."""

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable
from io import StringIO

from rich.console import Console
from rich.text import Text

from ..core import State, Trace
from ..text.words import counted
from .frames import recording
from .page import script_of, source
from .terminal import legend
from .texts import pages_line, state_lines

MOST_REQUESTS, MOST_CHARACTERS = 32, 600  # maximum number of requests of a state, and of characters of an answer
PRE = '<pre style="white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.6 ui-monospace,monospace">{code}</pre>'
LARGEST = 1 << 23  # bytes of JSON of `steps_html`; more would make a notebook slow


def exported(lines: Iterable[Text]) -> str:
    """Return lines of text as HTML. The browser wraps them."""
    console = Console(file=StringIO(), record=True, force_jupyter=False, color_system="truecolor")
    console.print(*lines, sep="\n", soft_wrap=True)
    return console.export_html(code_format=PRE, inline_styles=True)


def state_html(state: State) -> str:
    """Return a state as HTML, in colours for light and dark notebooks.

    Args:
        state: The state.
    """
    return exported([*state_lines(state, MOST_REQUESTS, MOST_CHARACTERS), pages_line(state), legend()])


def steps_html(trace: Trace) -> str:
    """Return the states of a trace as HTML in which a slider selects the step.

    The HTML is ASCII. It contains the last state as static HTML, for viewers that run no scripts. A page
    can contain the HTML of several traces. For a long trace, only the last state is shown.

    Args:
        trace: The trace of a decode.
    """
    *_, last = trace.states()
    runs = recording(trace)["runs"][-MOST_REQUESTS:]
    style = source("shared.css") + source("steps.css")
    needed = [{name: run[name] for name in ("head", "frames", "steps")} for run in runs]
    data = {"style": style, "first": trace.first.step, "last": last.step, "runs": needed}
    packed = json.dumps(data, separators=(",", ":")).encode()
    static = state_html(last).encode("ascii", "xmlcharrefreplace").decode()
    if len(packed) > LARGEST:
        long = f"These {counted(last.step, 'step')} are too long for a slider: save the trace, and run dlstep view FILE"
        return f"{exported([Text(long)])}{static}"
    steps = b64encode(zlib.compress(packed, 9)).decode()
    # The script is wrapped in a function, because a page may contain it several times.
    script = f'(() => {{\n"use strict";\n{script_of("steps.js")}}})();'.encode("ascii", "backslashreplace").decode()
    return f'<div class="dlstep-steps" data-steps="{steps}">{static}</div>\n<script>{script}</script>'
