"""The steps of a decode as self-contained HTML with a slider, for notebooks and saved pages."""

import json
import zlib
from base64 import b64encode
from functools import cache

from ..core import Trace
from ..text.words import counted
from .bundling import bundle, source
from .html import MOST_SEQUENCES, note, state_html
from .recordings import recording

LARGEST = 1 << 23  # bytes of JSON; more would make a notebook slow


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
    data = {"style": style, "first": trace.first.step, "last": last.step, "runs": [_needed(run) for run in runs]}
    packed = json.dumps(data, separators=(",", ":")).encode()
    static = state_html(last).encode("ascii", "xmlcharrefreplace").decode()
    if len(packed) > LARGEST:
        long = f"These {counted(last.step, 'step')} are too long for a slider: save the trace, and run dlstep view FILE"
        return f"{note(long)}{static}"
    steps = b64encode(zlib.compress(packed, 9)).decode()
    return f'<div class="dlstep-steps" data-steps="{steps}">{static}</div>\n<script>{_script()}</script>'


def _needed(run: dict[str, object]) -> dict[str, object]:
    """Return the parts of a run that the script reads."""
    return {name: run[name] for name in ("head", "frames", "steps")}


@cache
def _script() -> str:
    """Return the script as ASCII. It is wrapped in a function, because a page may contain it several times."""
    return f'(() => {{\n"use strict";\n{bundle("steps.js")}}})();'.encode("ascii", "backslashreplace").decode()
