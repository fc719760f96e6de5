"""Views of a terminal."""

from io import StringIO

from rich.console import Console, RenderableType

from dlstep import Session, views


def printed(view: RenderableType) -> str:
    """Text as a terminal 200 characters wide shows it."""
    console = Console(width=200, file=StringIO())
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_terminal_views_show_the_same(session: Session) -> None:
    state = printed(views.state_view(session.state))
    assert "request 0, running" in state
    assert "\N{LIGHT SHADE}" in state
    assert "step 3: 2 running" in state
    assert "plan of step 3" in printed(views.plan_view(session.plan))
    assert "sampled" in printed(views.trace_view(session.trace))
