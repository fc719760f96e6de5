"""`dlstep attach`: an answer forms in the terminal, mistakes are one sentence, and hostile text does nothing."""

import json
import sys
import threading
import unicodedata
from io import StringIO
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from dlstep.cli import attach, generate
from dlstep.cli.options import Namespace
from dlstep.core import Abort, Add, Fail, Request, Spec, State, Trace, abort, add, init
from dlstep.text.output import Output
from dlstep.text.words import harmless, piece, printable
from dlstep.views import diff, frames_view, sequence_view
from dlstep.views.texts import event_text

from ...helpers.servers import nothing_goes_wrong_unseen  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ...helpers.serving import Paced, served, shadow_engine, tiny_llm

Captured = pytest.CaptureFixture[str]
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# Every code point that is no character of its own: controls, formats, surrogates, private ones, those without a meaning.
ACTING = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith("C")]


def drawn(thing: Any) -> str:
    """Text for a terminal without colours."""
    console = Console(file=StringIO(), width=100, force_terminal=False, color_system=None)
    console.print(thing)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def acts(text: str) -> set[str]:
    """The code points of a text that a terminal might act on, its lines apart."""
    return {c for c in text if unicodedata.category(c)[0] == "C" or c in BIDI} - {"\n"}


def frames(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A head and frames of a server that means no good."""
    head = {"request": text, "prompt": text, "eos": [1]}
    frame = {
        "tokens": [[0, 5, 0.5, text], [1, 1, 0.5, ""]],
        "cells": [[2, 7, 0.5, text], [3, None, 0.0, None], [4, 9, 0.9, ""]],
    }
    return head, [{**frame, "settled": 2, "nfe": 3, "finish_reason": text}]


def state_of(text: str) -> State:
    """A state with a request whose tokens are the letters of `text`, and one that ended by it."""
    pieces = (b"", b"", *(letter.encode("utf-8", "surrogatepass") for letter in text[:40]))
    spec = Spec(0, (1,), len(pieces), pieces=pieces)
    first = init(tiny_llm().engine.first.config.__class__(spec), tiny_llm().engine.first.strategy)
    state = add(first, Request(0, tuple(range(2, len(pieces))) or (1,)))
    return abort(add(state, Request(1, (1,))), 1, text)


def test_no_code_point_reaches_a_terminal_that_it_might_act_on() -> None:
    assert {*BIDI} <= {*ACTING} and len(ACTING) > 100_000
    whole = "".join(ACTING)
    assert {*printable(whole)} == {"\ufffd", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"}
    assert {*harmless(whole)} == {"\ufffd", "\n", "\t"} and len(harmless(whole)) == len(whole)
    # Drawing takes longer: every control and format, and some of the thousands that are alike.
    some = [c for c in ACTING if unicodedata.category(c) in ("Cc", "Cf")] + ACTING[:: len(ACTING) // 400]
    for text in ("".join(some[:300]), "".join(some[300:])):
        assert not acts(drawn(frames_view(*frames(text))))
        for event in (Abort(0, "x"), Fail(0, "x")):
            object.__setattr__(event, "reason" if isinstance(event, Abort) else "error", text)
            assert not acts(event_text(event))


@given(
    text=st.text(st.sampled_from([*BIDI, "\x1b", "\x9b", "\x07", "\r", "\x00", "\u2028", "[", "3", "1", "m", "]", "a", "\n"]))
)
def test_hostile_answers_are_shown_harmlessly_everywhere(text: str) -> None:
    assert not acts(drawn(frames_view(*frames(text))))
    state = state_of(text)
    assert not acts(drawn(sequence_view(next(iter(state.waiting)), state))) and not acts(str(state))
    spec = state.config.spec
    assert not any(acts(piece(spec, token)) for token in range(spec.vocab_size))
    output = Output("x", text, (5,), (0.5,), "error", 1, 1, text)
    assert not acts(str(output)) and not acts(generate.statistics(output))
    trace = Trace(state, (Add(Request(5, (1,))),))
    assert not acts(str(diff(trace, Trace(state, (Abort(0, text.encode("utf-8", "ignore").decode()),)))))


def attached(url: str, request: str | None = None, *, as_json: bool = False) -> int:
    """The exit code of the command."""
    return attach.run(Namespace(url=url, request=request, interval=0.01, json=as_json))


class Screen(StringIO):
    """A terminal; what it shows as running may go on."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def write(self, text: str) -> int:
        """Show a text."""
        if "running" in text:
            self._gate.set()
        return super().write(text)


def test_a_request_is_followed_while_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    engine = shadow_engine(seconds=0.02)
    assert isinstance(engine.driver, Paced)
    with served(engine) as server, server.http() as http:
        engine.driver.gate.clear()
        body = {"prompt": ["abc", "xyz"], "max_tokens": 24, "ignore_eos": True, "dlstep": {"stream": "steps"}}
        asked = threading.Thread(target=lambda: answers.append(http.post("/v1/completions", json=body).json()))
        answers: list[Any] = []
        asked.start()
        with server.http() as other:
            server.until(lambda: bool(other.get("/v1/requests").json()["data"]))
            request_id = other.get("/v1/requests").json()["data"][0]["id"]
        assert attached(server.url) == 0
        assert f"{request_id}  running, 0 tokens in 0 forward passes" in capsys.readouterr().out
        screen = Screen(engine.driver.gate)
        monkeypatch.setattr(
            attach, "Console", lambda: Console(file=screen, force_terminal=True, width=100, height=40, color_system=None)
        )
        assert attached(server.url, request_id) == 0
        asked.join()
        shown = screen.getvalue() + capsys.readouterr().out
        assert "ended by length" in shown and shown.count("24 tokens in ") == 2 and "running" in shown
        monkeypatch.undo()
        assert attached(server.url + "/", request_id) == 0
        plain = capsys.readouterr().out
        for choice in answers[0]["choices"]:
            assert harmless(choice["text"]) in plain
        assert attached(server.url, request_id, as_json=True) == 0
        printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        with server.http() as other:
            runs = other.get(f"/v1/requests/{request_id}/steps").json()["runs"]
        assert printed == [frame for run in runs for frame in run["frames"]]
