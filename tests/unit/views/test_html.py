"""Pictures show what is there, escaped, and stay short."""

from html.parser import HTMLParser

from dlstep import SamplingParams, Session, views

from ...helpers.shadow_llm import make_llm


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
