"""Values in notebooks and terminals: escaped, short, and in colours that can be left out."""

import re
from html.parser import HTMLParser
from io import StringIO

import pytest
from IPython.core.interactiveshell import InteractiveShell
from rich.console import Console

from dlstep import SamplingParams, Session, State, Trace, views

from ...helpers.shadow_llm import make_llm
from .conftest import PROMPT


class Balance(HTMLParser):
    """Counts open tags and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> str:
    """The text of well-formed HTML."""
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    return parser.text


def test_values_are_shown_escaped(session: Session) -> None:
    session.submit([5], SamplingParams(max_tokens=8))
    session.abort(2, "<b>&")
    assert "<b>" not in views.state_html(session.state)
    text = read(views.state_html(session.state))
    assert "request 2, ended by abort" in text and "request 0, running" in text and "pages ■" in text
    for kind in ("prompt", "· masked", "unmasked", "settled", "probability below 0.9"):
        assert kind in text


def test_differences_are_told(session: Session) -> None:
    bold = session.fork(accept_threshold=0.0)
    session.step()
    bold.step()
    bold.submit(PROMPT)
    states = str(views.diff(session.state, bold.state))
    assert "accept_threshold 0.9 -> 0" in states and "request 2: added, waiting" in states and " unmasked: " in states
    traces = str(views.diff(session.trace, Trace(session.trace.first, session.trace.events[:2])))
    assert "the same for 2 events, then different at event 2" in traces
    assert "old: step 0 of requests 0, 1" in traces and "new: ended" in traces


def test_long_things_are_cut_short() -> None:
    session = make_llm(num_pages=1024, max_model_len=4096, max_num_batched_tokens=4096).session()
    session.submit([5] * 3000, SamplingParams(max_tokens=8, ignore_eos=True))
    for _ in range(40):
        session.submit([1])
    session.step()
    html = views.state_html(session.state)
    assert len(html) < 40_000 and "and 9 more requests" in html
    assert len(str(session.state).splitlines()) < 20


def test_notebooks_show_states_in_colour_and_other_values_as_text(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # IPython warns if the shell has activated another environment
    format_ = InteractiveShell().display_formatter.format
    difference = views.diff(session.state, session.trace.first)
    for value in (session.state, session.plan, session.samples, session.trace, difference, session.output(0)):
        shown, _ = format_(value)
        assert shown["text/plain"] == str(value) and ("text/html" in shown) == isinstance(value, State)
    assert format_(session.state)[0]["text/html"] == views.state_html(session.state)


def test_no_color_leaves_no_colour(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=(file := StringIO()), force_terminal=True, color_system="truecolor", width=200)
    (run, _) = views.recording(session.trace)["runs"]
    console.print(views.legend(), views.frames_view(run["head"], run["frames"]))
    codes = {code for codes in re.findall(r"\x1b\[([\d;]*)m", file.getvalue()) for code in codes.split(";")}
    assert codes <= {"0", "1", "2", "4"} and "request 0, running" in file.getvalue() and "·" in file.getvalue()
