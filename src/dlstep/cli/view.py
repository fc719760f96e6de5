"""`dlstep view`: write a recording or a trace as one HTML file that opens without a server."""

import json
import webbrowser
from pathlib import Path
from secrets import token_hex
from types import NoneType
from typing import Any

from ..core import Trace
from ..core.checks import short
from ..core.trace import INAPPLICABLE, reason_of
from ..engine.json_lines import is_a
from ..text.constraints import recompiled
from ..text.words import counted
from ..views.page import page_of
from ..views.recordings import KIND, VERSION, recording
from .options import new_parser
from .parser import ArgumentParser, Namespace

TRACE = "dlstep_trace"
CELL = (int, (int, NoneType), float, (str, NoneType))  # position, id, probability and text of a token


def parser() -> ArgumentParser:
    """Return the parser of `dlstep view`."""
    options = new_parser(
        "dlstep view FILE [options]",
        "Write the live page with a recording in it, as one HTML file to open, to mail or to put on a site.",
        "dlstep view dlstep-recording.json --open\ndlstep view decode.jsonl --out decode.html",
    )
    options.add_argument("file", type=str, metavar="FILE", help="What the page of `dlstep serve` or Trace.save wrote.")
    options.add_argument("--out", type=str | None, default=None, help="The file to write; else FILE with the suffix .html.")
    options.add_argument("--open", action="store_true", help="Open it in a browser.")
    return options


def run(options: Namespace) -> int:
    """Write the page and print its path."""
    source = Path(options.file)
    target = source.with_suffix(".html") if options.out is None else Path(options.out)
    if target.resolve() == source.resolve():
        raise ValueError(f"--out is {options.out!r}, which is the recording itself: name another file")
    recording_data = recording_in(source)
    _write(target, page_of(recording_data))
    print(f"{target}: {counted(len(recording_data['runs']), 'run')}")
    if options.open:
        webbrowser.open(target.resolve().as_uri())
    return 0


def recording_in(path: Path) -> dict[str, Any]:
    """Return the recording in a file, or that of its trace. Raises ValueError, naming the file, otherwise."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: neither a recording nor a trace: it is no UTF-8 text") from error
    if is_trace(text):
        trace = recompiled(Trace.load(path))
        try:
            return recording(trace)
        except INAPPLICABLE as error:  # an edited file may contain values of any type
            raise ValueError(f"{path}: the trace does not hold together: {reason_of(error)}") from error
    try:
        data = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: neither a recording nor a trace: it is not JSON ({error})") from error
    check(data, str(path))
    return data


def is_trace(text: str) -> bool:
    """Return whether the first line is that of a trace."""
    try:
        first = json.loads(text.partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and TRACE in first


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no number")


def check(data: Any, path: str) -> None:
    """Raise ValueError, naming file, run and frame, for data that the page cannot show."""
    if not is_a(data, {"runs": list}) or data.get(KIND) is None:
        raise ValueError(f"{path}: neither a recording nor a trace: give what the page or Trace.save wrote")
    if data[KIND] != VERSION:
        raise ValueError(f"{path}: a recording of version {short(data[KIND])}, but only version {VERSION} can be shown")
    for place, run in enumerate(data["runs"]):
        if not is_a(run, {"head": dict, "frames": list}):
            raise ValueError(f"{path}: run {place} lacks its head or its frames")
        for number, frame in enumerate(run["frames"]):
            if reason := _fault(frame if isinstance(frame, dict) else {}):
                raise ValueError(f"{path}: run {place}, frame {number}: {reason}")


def _fault(frame: dict[str, Any]) -> str | None:
    """Return why a frame cannot be shown; None if it can."""
    for name in ("seq", "nfe", "settled"):
        if not is_a(frame.get(name), int) or frame[name] < 0:
            return f"{name} must be a whole number, got {short(frame.get(name))}"
    for name in ("tokens", "cells"):
        if not is_a(frame.get(name), [list]) or not all(map(_is_cell, frame[name])):
            return f"{name} must be a list of [position, id, probability, text]"
    return None if frame["settled"] >= len(frame["tokens"]) else "it settles more tokens than there are"


def _is_cell(cell: list[Any]) -> bool:
    return len(cell) == len(CELL) and all(map(is_a, cell, CELL))


def _write(target: Path, html: str) -> None:
    """Write a file completely or not at all."""
    whole = target.resolve()
    part = whole.with_name(f".{whole.name[:100]}.{token_hex(4)}")
    try:
        part.write_text(html, "utf-8")
        part.replace(whole)
    finally:
        part.unlink(missing_ok=True)
