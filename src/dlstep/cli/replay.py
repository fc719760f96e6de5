"""`dlstep replay`: re-execute a saved trace without a model."""

from collections import Counter
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from ..core import ReplayDiverged, Trace
from ..text.constraints import recompiled
from ..text.words import counted, printable
from .options import Namespace, json_text

EXAMPLES = "dlstep replay decode.jsonl"


@dataclass(frozen=True)
class ReplayCommand:
    """Plan every step of a saved trace again, compare with the recorded plans, and commit the recorded samples."""

    file: Path
    """A file that Trace.save wrote."""
    _: KW_ONLY
    json: bool = False
    """Print a JSON object, and nothing else, on stdout."""


COMMAND = ReplayCommand


def run(options: Namespace) -> int:
    """Print what was replayed, or the first divergence. Return 1 for a divergence, else 0."""
    trace = recompiled(Trace.load(options.file))
    kinds = Counter(type(event).__name__.lower() for event in trace.events)
    counts = {name: kinds[name] for name in ("add", "adopt", "abort", "fail", "rebuild", "prune")}
    steps = kinds["samples"]
    try:
        state, divergence = trace.replay(), None
    except ReplayDiverged as error:
        state, divergence = None, str(error)
    if options.json:
        print(json_text({"steps": steps, **counts, "divergence": divergence}))
    elif state is None:
        print(f"diverged: {printable(divergence or '')}")
    else:
        live = len(state.running) + len(state.waiting)
        known = counted(counts["add"] + counts["adopt"], "request")
        print(f"replayed {counted(steps, 'step')} of {known}, {live} of them unfinished: every plan is as recorded")
    return 0 if state is not None else 1
