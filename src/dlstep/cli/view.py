"""`dlstep view`: write a recording or a trace as one HTML file that opens without a server."""

import json
import webbrowser
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from ..core import Json, short
from ..text.words import counted
from ..views import page_of
from ..views.frames import KIND, VERSION, recording
from .options import Namespace
from .replay import OwnParts, trace_in

EXAMPLES = """dlstep view dlstep-recording.json --open
dlstep view decode.jsonl --out decode.html
dlstep view decode.jsonl --rule my_rule.py"""
TRACE = '{"dlstep_trace":'  # how the first line of a trace begins


@dataclass(frozen=True)
class ViewCommand(OwnParts):
    """Write the live page with a recording in it, as one HTML file to open, to mail or to put on a site."""

    file: Path
    """A recording saved by the page of `dlstep serve`, or a trace saved by Trace.save."""
    _: KW_ONLY
    out: Path | None = None
    """The file to write; else FILE with the suffix .html."""
    open: bool = False
    """Open it in a browser."""


COMMAND = ViewCommand


def run(options: Namespace) -> int:
    """Write the page and print its path."""
    source: Path = options.file
    target = options.out or source.with_suffix(".html")
    if target.resolve() == source.resolve():
        raise ValueError(f"--out is {str(target)!r}, which is the recording itself: name another file")
    recording_data = recording_in(options)
    target.write_text(page_of(recording_data), "utf-8")
    print(f"{target}: {counted(len(recording_data['runs']), 'run')}")
    if options.open:
        webbrowser.open(target.resolve().as_uri())
    return 0


def recording_in(options: Namespace) -> Json:
    """Return the recording in the file, or that of its trace. Raises ValueError, naming the file, otherwise.

    The page itself checks the frames of a recording.
    """
    path: Path = options.file
    try:
        text = path.read_text("utf-8")
        data = None if text.startswith(TRACE) else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: neither a recording nor a trace: it is not JSON ({error})") from error
    if data is None:
        return recording(trace_in(options))
    if not isinstance(data, dict) or KIND not in data or not isinstance(data.get("runs"), list):
        raise ValueError(f"{path}: neither a recording nor a trace: give what the page or Trace.save wrote")
    if data[KIND] != VERSION:
        raise ValueError(f"{path}: a recording of version {short(data[KIND])}, but only version {VERSION} can be shown")
    return data
