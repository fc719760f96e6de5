"""`dlstep view`: write a recording or a trace as one HTML file that opens without a server."""

import json
import webbrowser
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

from ..core import Trace
from ..core.checks import short
from ..core.trace import INAPPLICABLE, reason_of
from ..text.constraints import recompiled
from ..text.words import counted
from ..views.page import page_of
from ..views.recordings import KIND, VERSION, recording
from .options import new_parser
from .parser import ArgumentParser, Namespace

TRACE = "dlstep_trace"


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
    fields = _mapping(data)
    runs = fields.get("runs")
    if fields.get(KIND) is None or not isinstance(runs, list):
        raise ValueError(f"{path}: neither a recording nor a trace: give what the page or Trace.save wrote")
    if fields[KIND] != VERSION:
        raise ValueError(f"{path}: a recording of version {short(fields[KIND])}, and only {VERSION} can be shown")
    for place, run in enumerate(cast(list[Any], runs)):
        head, frames = _mapping(run).get("head"), _mapping(run).get("frames")
        if not isinstance(head, dict) or not isinstance(frames, list):
            raise ValueError(f"{path}: run {place} lacks its head or its frames")
        for number, frame in enumerate(cast(list[Any], frames)):
            if reason := _fault(_mapping(frame)):
                raise ValueError(f"{path}: run {place}, frame {number}: {reason}")


def _mapping(data: Any) -> dict[str, Any]:
    return cast(dict[str, Any], data) if isinstance(data, dict) else {}


def _fault(frame: dict[str, Any]) -> str | None:
    """Return why a frame cannot be shown; None if it can."""
    for name in ("seq", "nfe", "settled"):
        if type(frame.get(name)) is not int or frame[name] < 0:
            return f"{name} must be a whole number, got {short(frame.get(name))}"
    for name in ("tokens", "cells"):
        cells = frame.get(name)
        if not isinstance(cells, list) or not all(map(_is_cell, cast(list[Any], cells))):
            return f"{name} must be a list of [position, id, probability, text]"
    return None if frame["settled"] >= len(frame["tokens"]) else "it settles more tokens than there are"


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, list) or len(cast(list[Any], cell)) != 4:
        return False
    position, token, probability, text = cast(list[Any], cell)
    numbers = type(position) is int and (token is None or type(token) is int) and type(probability) in (int, float)
    return numbers and (text is None or isinstance(text, str))


def _write(target: Path, html: str) -> None:
    """Write a file completely or not at all."""
    whole = target.resolve()
    part = whole.with_name(f".{whole.name[:100]}.{token_hex(4)}")
    try:
        part.write_text(html, "utf-8")
        part.replace(whole)
    finally:
        part.unlink(missing_ok=True)
