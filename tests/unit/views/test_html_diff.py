"""Differences of states in HTML."""

from dlstep import Session, Trace, views

from .conftest import PROMPT
from .test_html import read


def test_differences_are_shown_escaped(session: Session) -> None:
    bold = session.fork(accept_threshold=0.0)
    session.step()
    bold.step()
    bold.submit(PROMPT)
    states = read(views.diff_html(views.diff(session.state, bold.state)))
    assert "accept_threshold 0.9 -> 0" in states
    assert "request 2: added, waiting" in states
    assert " unmasked: " in states
    other = Trace(session.trace.first, session.trace.events[:2])
    traces = read(views.diff_html(views.diff(session.trace, other)))
    assert "the same for 2 events, then different at event 2" in traces
    assert "old: step 0 of requests 0, 1" in traces and "new: ended" in traces
    assert "no difference in" in read(views.diff_html(views.diff(session.trace, session.trace)))
    assert "no difference" in read(views.diff_html(views.diff(session.state, session.state)))
