"""`dlstep replay`: re-execute a saved trace without a model."""

from collections import Counter
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path

from .. import rules, strategies
from ..core import ReplayDiverged, Texts, Trace
from ..core.options import searched
from ..core.request import PLUGINS
from ..text.constraints import recompiled
from ..text.words import counted, printable
from .options import Namespace, json_text

EXAMPLES = "dlstep replay decode.jsonl\ndlstep replay decode.jsonl --rule my_rule.py"


@dataclass(frozen=True, kw_only=True)
class OwnParts:
    """Options that name the files of the user's strategies, rules and processors in a trace."""

    decoding_strategy: Texts = ()
    """Your strategies in the trace: .py files or module paths."""
    rule: Texts = ()
    """Your rules in the trace: .py files or module paths."""
    inner: Texts = ()
    """Your inner rules in the trace: .py files or module paths."""
    processors: Texts = ()
    """Your processors in the trace: .py files or module paths."""


@dataclass(frozen=True)
class ReplayCommand(OwnParts):
    """Plan every step of a saved trace again, compare with the recorded plans, and commit the recorded samples."""

    file: Path
    """A file that Trace.save wrote."""
    _: KW_ONLY
    json: bool = False
    """Print a JSON object, and nothing else, on stdout."""


COMMAND = ReplayCommand
PLUGINS_OF = {"decoding_strategy": strategies.PLUGINS, "processors": PLUGINS}  # the other options name rules


def trace_in(options: Namespace) -> Trace:
    """Return the trace in the file of the options, after importing the user's code that they name."""
    with searched(Path.cwd()):
        for field in fields(OwnParts):
            for part in options[field.name]:
                PLUGINS_OF.get(field.name, rules.PLUGINS).load(part)
    return recompiled(Trace.load(options.file))


def run(options: Namespace) -> int:
    """Print what was replayed, or the first divergence. Return 1 for a divergence, else 0."""
    trace = trace_in(options)
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
