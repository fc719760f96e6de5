"""The display that everything in a process shares."""

import re
import sys

import pytest

from dlstep import SamplingParams
from dlstep.views.progress_bars import capturing_bar, close, display, download_bars, loading_bar, waiting_line

from ...helpers.screen import screen
from ...helpers.shadow_llm import make_llm

Captured = pytest.CaptureFixture[str]
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stderr that takes control sequences, 80 columns wide."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("terminal")
def test_nested_bars_share_one_display_and_leave_nothing_behind(capsys: Captured) -> None:
    with display(), waiting_line("loading a model"), loading_bar(100, enabled=True) as load:
        load(50)
        with capturing_bar(enabled=True) as show:
            show(1, 2)
        print("a line meanwhile", file=sys.stderr)
    err = capsys.readouterr().err
    assert err.count(HIDDEN) == err.count(SHOWN) == 1, "one live area"
    assert "loading a model" in err and "weights" in err
    assert screen(err) == ["a line meanwhile"]


@pytest.mark.usefixtures("terminal")
def test_something_is_drawn_at_once(capsys: Captured) -> None:
    with display(), waiting_line("loading a model"):
        assert "loading a model" in capsys.readouterr().err


@pytest.mark.usefixtures("terminal")
def test_a_bar_of_graphs_is_not_shown_without_graphs(capsys: Captured) -> None:
    with capturing_bar(enabled=True):
        pass
    assert "graphs" not in capsys.readouterr().err


@pytest.mark.usefixtures("terminal")
def test_a_disabled_display_hides_what_is_shown_inside(capsys: Captured) -> None:
    with display(enabled=False), waiting_line("loading a model"), loading_bar(100, enabled=True) as load:
        load(50)
    assert capsys.readouterr() == ("", "")


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: Captured) -> None:
    with display(), waiting_line("loading a model"), loading_bar(100, enabled=True) as load:
        load(50)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
def test_answers_are_shown_as_they_form(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm()
    with display() as area:
        refreshed = llm.engine.driver.run

        def run(*values: object, **named: object) -> object:
            area.refresh()
            return refreshed(*values, **named)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(llm.engine.driver, "run", run)
        llm.generate("a prompt", SamplingParams(max_tokens=32))
    err = capsys.readouterr().err
    assert "\N{LIGHT SHADE}" in err, "masked positions are drawn"
    assert err.count(HIDDEN) == 1 and screen(err) == []


@pytest.mark.usefixtures("terminal")
def test_downloads_are_shown_in_the_display(capsys: Captured) -> None:
    with display(), waiting_line("loading org/name"), download_bars() as bars:
        with bars(total=10, desc="Fetching 10 files") as bar:
            bar.update(4)
            bar.refresh()
            area = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", _drawn())
        assert "Fetching 10 files" in area and "4/10" in area
    err = capsys.readouterr().err
    assert err.count(HIDDEN) == 1 and screen(err) == []


def _drawn() -> str:
    """The text of the open display."""
    from rich.console import Console

    with display() as area:
        console = Console(width=80)
        with console.capture() as capture:
            console.print(area)
        return capture.get()


@pytest.mark.usefixtures("terminal")
def test_closing_the_display_shows_the_cursor(capsys: Captured) -> None:
    with display(), waiting_line("loading a model"):
        close()
        err = capsys.readouterr().err
        assert err.count(HIDDEN) == err.count(SHOWN) == 1 and screen(err) == []
