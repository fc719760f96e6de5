"""Bars of one process, which share a live area."""

import sys

import pytest

from dlstep import SamplingParams
from dlstep.views.progress_bars import Bar, capturing_bar, loading_bar, terminal, waiting_line

from ...helpers.screen import screen
from ...helpers.shadow_llm import make_llm

HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def tty(monkeypatch):
    """A stderr that takes control sequences, 80 columns wide."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    terminal.cache_clear()
    yield
    terminal.cache_clear()


@pytest.mark.usefixtures("tty")
def test_nested_bars_share_one_area_and_leave_nothing_behind(capsys):
    with waiting_line("loading a model"), loading_bar(100, enabled=True) as load:
        load(50)
        with capturing_bar(enabled=True) as show:
            show(1, 2)
        print("a line meanwhile", file=sys.stderr)
    err = capsys.readouterr().err
    assert err.count(HIDDEN) == err.count(SHOWN) == 1, "one live area"
    assert "loading a model" in err and "weights" in err
    assert screen(err) == ["a line meanwhile"]


def test_nothing_is_drawn_where_there_is_no_terminal(capsys):
    with waiting_line("loading a model"), loading_bar(100, enabled=True) as load:
        load(50)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("tty")
def test_answers_are_shown_as_they_form(capsys, monkeypatch):
    llm = make_llm()
    shown = Bar.show

    def show(bar, **values):
        shown(bar, **values)
        bar.refresh()

    monkeypatch.setattr(Bar, "show", show)
    llm.generate("a prompt", SamplingParams(max_tokens=32))
    err = capsys.readouterr().err
    assert "·" in err, "masked positions are drawn"
    assert err.count(HIDDEN) == 1 and screen(err) == []
