"""Pictures show what is there, escaped, and stay short."""

import math
from html.parser import HTMLParser
from itertools import combinations

from dlstep import LLM, Config, Request, SamplingParams, Session, Spec, add, init, views
from dlstep.strategies import load
from dlstep.views.cells import event_rows
from dlstep.views.html import COLOURS

from ...helpers.shadow_llm import make_llm
from .conftest import PARAMS, PROMPT


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


def test_a_state_is_shown_escaped(session: Session) -> None:
    html = views.state_html(session.state)
    assert "<b>shells" not in html
    text = read(html)
    assert "<b>" in text
    assert "&" in text
    assert "request 0, running" in text
    assert "16 pages of 8 positions" in text
    for phase in ("prompt, ", "open, ", 'masked"'):
        assert f", {phase}" in html


def test_a_plan_is_shown_with_its_spans(session: Session) -> None:
    text = read(views.plan_html(session.plan))
    assert f"Plan of step 3: 2 requests, {sum(len(span.rows.tokens) for span in session.plan.spans)} rows" in text
    assert f"{session.plan.spans[0].rows.start} to {session.plan.spans[0].rows.stop - 1}" in text


def test_a_trace_is_shown_event_by_event(session: Session) -> None:
    session.abort(1)
    session.run()
    rows = list(event_rows(session.trace))
    assert [row.kind for row in rows[:3]] == ["add", "add", "step"]
    assert rows[-1].emitted == sum(len(session.output(number).token_ids) for number in (0, 1))
    assert f"Trace of {len(rows)} events: 2 adds  {session.state.step} steps" in read(views.trace_html(session.trace))


def test_a_finished_and_a_rejected_request_are_shown_with_their_reason(llm: LLM) -> None:
    session = llm.session()
    session.submit(PROMPT, PARAMS)
    session.submit([1], PARAMS)
    session.run()
    text = read(views.state_html(session.state))
    assert "ended by length" in text
    assert "ended by rejected" in text
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
    assert "9 earlier requests not shown" in html
    assert "positions before" in views.sequence_html(session.state.running[0], session.state)


def test_without_a_tokenizer_ids_are_shown() -> None:
    config = Config(Spec(mask_id=0, eos_ids=(1,), vocab_size=9), max_model_len=64, num_pages=4)
    state = add(init(config, load("multi_bd")(block_size=4)), Request(0, (7, 8)))
    assert "#7 #8 " in read(views.state_html(state))


def test_colours_can_be_told_apart() -> None:
    """Those that mean something; what is empty is nearly white."""
    full = ("prompt", "final", "held", "open", "owned", "shared", "cached")
    colours = {name: tuple(int(COLOURS[name][at : at + 2], 16) for at in (1, 3, 5)) for name in full}
    for one, two in combinations(full, 2):
        assert math.dist(colours[one], colours[two]) > 35, (one, two)
    assert all(sum(colour) > 3 * 140 for colour in colours.values()), "dark text is written on them"
