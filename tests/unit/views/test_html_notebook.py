"""States, plans and traces in notebooks."""

import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from dlstep import Session, Trace, views


@pytest.fixture(autouse=True)
def no_other_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython warns if the shell that started the tests has activated another virtual environment."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)


def test_notebooks_show_states_plans_and_traces(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = InteractiveShell()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    views.register()
    drawn = shell.display_formatter.formatters["text/html"]
    assert drawn(session.state) == views.state_html(session.state)
    assert drawn(session.plan) == views.plan_html(session.plan)
    assert drawn(session.trace) == views.trace_html(session.trace)
    states, first = views.diff(session.state, session.trace.first), views.diff(session.trace, Trace(session.trace.first))
    assert drawn(states) == views.diff_html(states)
    assert drawn(first) == views.diff_html(first)
    written = shell.display_formatter.formatters["text/plain"]
    output = session.output(0)
    for value in (session.state, session.plan, session.samples, session.trace, states, first, output):
        assert written(value) == str(value)
