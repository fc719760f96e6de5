"""Pictures show what is there, escaped, and stay short."""

import math
import sys
import warnings
from html.parser import HTMLParser
from io import StringIO
from itertools import combinations

import pytest
from IPython.core.interactiveshell import InteractiveShell
from rich.console import Console, RenderableType
from shadow_llm import make_llm

from dlstep import LLM, Config, Request, SamplingParams, Session, Spec, Trace, add, init, views
from dlstep.core import Abort, Add, Adopt, Fail, Prune, Rebuild
from dlstep.strategies import load
from dlstep.views.cells import PHASES, cells, event_rows, page_cells
from dlstep.views.html import COLOURS
from dlstep.views.terminal import PHASE_STYLES, USE_STYLES

PROMPT = "Max has 3 <b>shells</b> & more"
PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)


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


def printed(view: RenderableType) -> str:
    """Text as a terminal 200 characters wide shows it."""
    console = Console(width=200, file=StringIO())
    with console.capture() as capture:
        console.print(view)
    return capture.get()


@pytest.fixture
def session(llm: LLM) -> Session:
    """A session in the middle of two answers."""
    session = llm.session()
    session.submit(PROMPT, PARAMS)
    session.submit("other", PARAMS)
    for _ in range(3):
        session.step()
    return session


def test_cells_cover_every_position_once(session: Session) -> None:
    while not session.state.done:
        for sequence in session.state.running:
            shown = cells(sequence, session.state.config.spec)
            assert [cell.position for cell in shown] == list(range(len(shown)))
            assert {cell.phase for cell in shown} <= set(PHASES)
            tokens = tuple(cell.token for cell in shown)
            assert tokens[: len(sequence.request.prompt)] == sequence.request.prompt
            for cell in shown:
                assert (cell.token is None) == (cell.phase in ("masked", "void"))
                assert 0.0 <= cell.probability <= 1.0
            answer = tokens[len(sequence.request.prompt) :][: len(sequence.answer)]
            assert answer == sequence.answer
        session.step()
    for sequence in session.state.finished.values():
        assert (
            tuple(cell.token for cell in cells(sequence, session.state.config.spec))
            == sequence.request.prompt + sequence.answer
        )


def test_a_canvas_shows_what_is_fed() -> None:
    spec = Spec(mask_id=None, eos_ids=(1,), vocab_size=9)
    state = init(Config(spec, max_model_len=64, num_pages=4), load("diffusion_gemma")(canvas_length=4))
    state = add(state, Request(0, (7, 8), SamplingParams(max_tokens=3)))
    (sequence,) = state.waiting
    shown = cells(sequence, spec)
    assert [cell.phase for cell in shown] == ["prompt"] * 2 + ["draft"] * 3 + ["void"]
    assert tuple(cell.token for cell in shown[2:5]) == sequence.tokens(2, 5)
    assert "undecided, fed as token" in views.sequence_html(sequence, state)


def test_page_cells_agree_with_the_cache(session: Session) -> None:
    while not session.state.done:
        shown = page_cells(session.state)
        assert sum(bool(cell.holders) for cell in shown) == len(session.state.cache.owners)
        for cell in shown:
            assert len(cell.holders) == session.state.cache.owners.get(cell.page, 0)
        session.step()
    assert {cell.use for cell in page_cells(session.state)} <= {"cached", "free"}


def test_a_state_is_shown_escaped(session: Session) -> None:
    html = views.state_html(session.state)
    assert "<b>shells" not in html
    text = read(html)
    assert "<b>" in text
    assert "&" in text
    assert "request 0, running" in text
    assert "16 pages of 8 positions" in text
    for phase in ("prompt", "open", "masked"):
        assert f", {phase}, " in html


def test_a_plan_is_shown_with_its_spans(session: Session) -> None:
    text = read(views.plan_html(session.plan))
    assert f"plan of step 3: {sum(len(span.tokens) for span in session.plan.spans)} rows of 2 requests" in text
    assert f"{session.plan.spans[0].start} to {session.plan.spans[0].stop - 1}" in text


def test_a_trace_is_shown_event_by_event(session: Session) -> None:
    session.abort(1)
    session.run()
    rows = list(event_rows(session.trace))
    assert [row.kind for row in rows[:3]] == ["add", "add", "step"]
    assert rows[-1].emitted == sum(len(session.output(number).token_ids) for number in (0, 1))
    assert f"trace of {len(rows)} events, {session.state.step} of them forwards" in read(views.trace_html(session.trace))


def test_a_finished_and_a_rejected_request_are_shown_with_their_reason(llm: LLM) -> None:
    session = llm.session()
    session.submit(PROMPT, PARAMS)
    session.submit([1], PARAMS)
    session.run()
    text = read(views.state_html(session.state))
    assert "finished: length" in text
    assert "finished: rejected" in text
    assert "mask id" in text


def test_long_things_are_cut_short() -> None:
    llm = make_llm(num_pages=1024, max_model_len=4096, max_num_batched_tokens=4096)
    session = llm.session()
    session.submit([5] * 3000, SamplingParams(max_tokens=8, ignore_eos=True))
    for _ in range(40):
        session.submit([1])
    session.step()
    html = views.state_html(session.state)
    assert len(html) < 400_000
    assert "earlier requests are not shown" in html
    assert "positions before" in views.sequence_html(session.state.running[0], session.state)


def test_terminal_views_show_the_same(session: Session) -> None:
    state = printed(views.state_view(session.state))
    assert "request 0, running" in state
    assert "\N{LIGHT SHADE}" in state
    assert "step 3: 2 running" in state
    assert "plan of step 3" in printed(views.plan_view(session.plan))
    assert "sampled" in printed(views.trace_view(session.trace))


def test_without_a_tokenizer_ids_are_shown() -> None:
    config = Config(Spec(mask_id=0, eos_ids=(1,), vocab_size=9), max_model_len=64, num_pages=4)
    state = add(init(config, load("multi_bd")(block_size=4)), Request(0, (7, 8)))
    assert "#7 #8 " in read(views.state_html(state))


def test_notebooks_show_states_plans_and_traces(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = InteractiveShell()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    views.register()
    drawn = shell.display_formatter.formatters["text/html"]
    assert drawn(session.state) == views.state_html(session.state)
    assert drawn(session.plan) == views.plan_html(session.plan)
    assert drawn(session.trace) == views.trace_html(session.trace)
    states, first = views.diff(session.state, session.trace.first), views.diff(session.trace, Trace(session.trace.first))
    assert drawn(states) == views.state_diff_html(states)
    assert drawn(first) == views.trace_diff_html(first)
    written = shell.display_formatter.formatters["text/plain"]
    for value in (session.state, session.plan, session.samples, session.trace, states, first):
        assert written(value) == str(value)


def test_a_notebook_without_widgets_is_not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", InteractiveShell)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        views.register()
        warnings.warn("IProgress not found. Please update jupyter and ipywidgets.", UserWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["something else"]


def test_colours_can_be_told_apart() -> None:
    """Those that mean something; what is empty is nearly white."""
    full = ("prompt", "final", "held", "open", "owned", "shared", "cached")
    colours = {name: tuple(int(COLOURS[name][at : at + 2], 16) for at in (1, 3, 5)) for name in full}
    for one, two in combinations(full, 2):
        assert math.dist(colours[one], colours[two]) > 35, (one, two)
    assert all(sum(colour) > 3 * 140 for colour in colours.values()), "dark text is written on them"
    assert len({*USE_STYLES.values(), PHASE_STYLES["open"]}) == len(USE_STYLES) + 1


def test_differences_are_shown_escaped(session: Session) -> None:
    bold = session.fork(accept_threshold=0.0)
    session.step()
    bold.step()
    bold.submit(PROMPT)
    states = read(views.state_diff_html(views.diff(session.state, bold.state)))
    assert "accept_threshold 0.9 -> 0" in states
    assert "request 2 came: waiting" in states
    assert " decided: " in states
    other = Trace(session.trace.first, session.trace.events[:2])
    traces = read(views.trace_diff_html(views.diff(session.trace, other)))
    assert "the same for 2 events, parted by event 2" in traces
    assert "old: step 0 of requests 0, 1" in traces and "new: ended" in traces
    assert "no difference in" in read(views.trace_diff_html(views.diff(session.trace, session.trace)))
    assert "no difference" in read(views.state_diff_html(views.diff(session.state, session.state)))


def test_every_kind_of_event_has_a_row() -> None:
    config = Config(Spec(mask_id=0, eos_ids=(1,), vocab_size=9), max_model_len=64, num_pages=4)
    trace = Trace(init(config, load("multi_bd")(block_size=4)))
    (waiting,) = add(trace.first, Request(7, (3, 4))).waiting
    for event in (Add(Request(0, (7, 8))), Adopt(waiting, 2), Rebuild(), Fail(0, "gone"), Abort(2), Prune()):
        trace = trace.extended(event)
    rows = [(row.kind, row.requests) for row in event_rows(trace)]
    assert rows == [("add", (0,)), ("adopt", (2,)), ("rebuild", ()), ("fail", (0,)), ("abort", (2,)), ("prune", ())]
