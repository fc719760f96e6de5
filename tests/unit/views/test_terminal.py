"""Views of a terminal."""

import re
from io import StringIO
from typing import get_args

import pytest
from rich.console import Console, RenderableType

from dlstep import Session, views
from dlstep.views.cells import Phase
from dlstep.views.terminal import legend


def printed(view: RenderableType) -> str:
    """Text as a terminal 200 characters wide shows it."""
    console = Console(width=200, file=StringIO())
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_requests_are_shown_with_their_masks(session: Session) -> None:
    panel = printed(views.sequence_view(session.state.running[0], session.state))
    assert "request 0, running" in panel and "\N{LIGHT SHADE}" in panel


def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(legend(get_args(Phase)))
    codes = {code for codes in re.findall(r"\x1b\[([\d;]*)m", console.file.getvalue()) for code in codes.split(";")}  # pyright: ignore[reportAttributeAccessIssue]
    assert codes <= {"0", "1", "2", "3", "4"}
