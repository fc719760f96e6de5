"""Values in notebooks and terminals: escaped, short, and in colours that can be left out."""

import re
from io import StringIO
from xml.etree.ElementTree import fromstring

import pytest

pytest.importorskip("IPython", reason="IPython is not installed: pip install 'dlstep[notebook]'")

from IPython.core.interactiveshell import InteractiveShell
from rich.console import Console
from rich.text import Text

from dlstep import SamplingParams, State, views
from dlstep.views.notebook import exported

from ...helpers.shadow_llm import make_llm


def read(html):
    """The text of well-formed HTML."""
    return "".join(fromstring(html).itertext())


def test_values_are_shown_escaped(session):
    session.submit([5], SamplingParams(max_tokens=8))
    session.abort(2, "<b>&")
    assert "<b>" not in views.state_html(session.state)
    text = read(views.state_html(session.state))
    assert "request 2, ended by abort" in text and "request 0, running" in text and "pages ■" in text
    for kind in ("prompt", "· masked", "unmasked", "settled", "probability below 0.9"):
        assert kind in text


def test_lines_are_lines():
    assert "a\nb" in re.sub("<[^>]+>", "", exported([Text("a"), Text("b")]))


def test_long_things_are_cut_short():
    session = make_llm(num_pages=1024, max_model_len=4096, max_num_batched_tokens=4096).session()
    session.submit([5] * 3000, SamplingParams(max_tokens=8, ignore_eos=True))
    for _ in range(40):
        session.submit([1])
    session.step()
    html = views.state_html(session.state)
    assert len(html) < 40_000 and "and 9 more requests" in html
    assert len(str(session.state).splitlines()) < 20


def test_notebooks_show_states_in_colour_and_other_values_as_text(session, monkeypatch):
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # IPython warns if the shell has activated another environment
    format_ = InteractiveShell().display_formatter.format
    difference = views.diff(session.state, session.trace.first)
    for value in (session.state, session.plan, session.samples, session.trace, difference, session.output(0)):
        shown, _ = format_(value)
        assert shown["text/plain"] == str(value) and ("text/html" in shown) == isinstance(value, State)
    assert format_(session.state)[0]["text/html"] == views.state_html(session.state)


def test_no_color_leaves_no_colour(session, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=(file := StringIO()), force_terminal=True, color_system="truecolor", width=200)
    (run, _) = views.recording(session.trace)["runs"]
    console.print(views.legend(), views.frames_view(run["head"], run["frames"]))
    codes = {code for codes in re.findall(r"\x1b\[([\d;]*)m", file.getvalue()) for code in codes.split(";")}
    assert codes <= {"0", "1", "2", "4"} and "request 0, running" in file.getvalue() and "·" in file.getvalue()
