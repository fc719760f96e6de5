"""States, plans and traces in notebooks."""

import sys
import warnings

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


def test_a_notebook_without_widgets_is_not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", InteractiveShell)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        views.register()
        warnings.warn("IProgress not found. Please update jupyter and ipywidgets.", UserWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["something else"]
