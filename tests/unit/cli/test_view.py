"""`dlstep view` on the command line: what it writes, and what it says of files that it cannot show."""

import json

import pytest

from dlstep.cli import main
from dlstep.views.frames import KIND, VERSION

HEAD = {"request": "1", "options": {}}
CELL = [0, 5, 0.5, "x"]
FRAME = {"seq": 0, "step": 0, "nfe": 0, "settled": 1, "tokens": [CELL], "cells": []}


def given(path, **changes):
    """A recording of one frame, with some fields of the frame changed."""
    path.write_text(json.dumps({KIND: VERSION, "runs": [{"head": HEAD, "frames": [FRAME | changes], "text": "x"}]}))
    return path


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "it is not JSON"),
        ("hello", "it is not JSON"),
        ("\ud800", "neither a recording nor a trace: it is not JSON"),
        ("[1, 2]", "neither a recording nor a trace: give what the page or Trace.save wrote"),
        ('{"dlstep_recording": 1}', "neither a recording nor a trace"),
        ('{"dlstep_recording": 2, "runs": []}', "a recording of version 2, but only version 1 can be shown"),
        ("[" * 100_000, "it is not JSON"),
        ('{"dlstep_trace": 2}', "line 1"),
        ('{"dlstep_trace": 1}', "format"),
    ],
)
def test_files_that_are_neither_are_refused(text, words, tmp_path, capsys):
    source = tmp_path / "x.json"
    source.write_text(text, "utf-8", errors="surrogatepass")
    assert main(["view", str(source)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("dlstep: error: ") and message.count("\n") == 1 and str(source) in message and words in message
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_the_page_lies_beside_the_recording(tmp_path, capsys):
    source = given(tmp_path / "run.json")
    assert main(["view", str(source)]) == 0
    page = tmp_path / "run.html"
    assert capsys.readouterr().out == f"{page}: 1 run\n" and "dlstep_recording" in page.read_text()


def test_the_recording_itself_is_never_written_over(tmp_path, capsys):
    source = given(tmp_path / "run.json")
    before = source.read_bytes()
    assert main(["view", str(source), "--out", str(tmp_path / "." / "run.json")]) == 2
    assert "which is the recording itself: name another file" in capsys.readouterr().err
    assert source.read_bytes() == before
    assert main(["view", str(tmp_path / "gone.json")]) == 2
    assert "gone.json" in capsys.readouterr().err
