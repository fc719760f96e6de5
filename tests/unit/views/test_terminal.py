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


def contrast(one: str, two: str) -> float:
    """The contrast ratio of two colours like `#c06000`, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(two)))
    return (light + 0.05) / (dark + 0.05)


def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(legend(get_args(Phase)))
    codes = {code for codes in re.findall(r"\x1b\[([\d;]*)m", console.file.getvalue()) for code in codes.split(";")}  # pyright: ignore[reportAttributeAccessIssue]
    assert codes <= {"0", "1", "2", "3", "4"}
