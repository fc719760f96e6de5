"""`dlstep view` on the command line: what it writes, and what it says of files that it cannot show."""

import json

import pytest

from dlstep.views.frames import KIND, VERSION

HEAD = {"request": "1", "options": {}}
CELL = [0, 5, 0.5, "x"]
FRAME = {"seq": 0, "step": 0, "nfe": 0, "settled": 1, "tokens": [CELL], "cells": []}


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
def test_files_that_are_neither_are_refused(text, words, tmp_path, failure):
    source = tmp_path / "x.json"
    source.write_text(text, "utf-8", errors="surrogatepass")
    message = failure(f"view {source}")
    assert str(source) in message and words in message
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_the_page_lies_beside_the_recording_which_is_never_written_over(tmp_path, printed, failure):
    source, page = tmp_path / "run.json", tmp_path / "run.html"
    text = json.dumps({KIND: VERSION, "runs": [{"head": HEAD, "frames": [FRAME], "text": "x"}]})
    source.write_text(text)
    assert printed(f"view {source}") == f"{page}: 1 run\n" and "dlstep_recording" in page.read_text()
    assert "which is the recording itself: name another file" in failure(f"view {source} --out {tmp_path}/./run.json")
    assert source.read_text() == text
    assert "gone.json" in failure(f"view {tmp_path}/gone.json")
