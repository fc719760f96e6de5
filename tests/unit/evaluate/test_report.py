"""The charts of a report beside a slow count, and the page of a comparison."""

from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st

from dlstep.evaluate.metrics import Pair
from dlstep.evaluate.report import MOST_TOKENS, PARTS, charts_of, comparison_page

from ...helpers.comparisons import row as made_row


@st.composite
def filled(draw: st.DrawFn) -> list[Pair]:
    """Answers with the step that unmasked each token."""
    found: list[Pair] = []
    for _ in range(draw(st.integers(1, 4))):
        steps = draw(st.integers(1, 9))
        unmasked = draw(st.lists(st.integers(1, steps), max_size=25))
        found.append(({"tokens": [0] * len(unmasked), "steps": steps}, {"decided_at": unmasked}))
    return found


@given(filled())
def test_the_figures_are_those_of_a_slow_count(pairs: list[Pair]) -> None:
    steps = sum(row["steps"] for row, _ in pairs)
    spent, per_step = [0] * (PARTS + 1), [0] * (MOST_TOKENS + 1)
    for row, beside in pairs:
        unmasked = beside["decided_at"]
        for step in range(1, row["steps"] + 1):
            per_step[min(MOST_TOKENS, unmasked.count(step))] += 1
            masked = [offset for offset, at in enumerate(unmasked) if at >= step]
            spent[masked[0] * PARTS // len(unmasked) if masked else PARTS] += 1
    spent_shares, step_shares = (chart.shares for chart in charts_of(pairs))
    assert step_shares == pytest.approx([each / steps for each in per_step]) and sum(step_shares) == pytest.approx(1)
    assert spent_shares == pytest.approx([each / steps for each in spent])


class Tags(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = '=HYPERLINK("http://x")</style><script>alert(1)</script><img src=http://x onerror=alert(1)>'


def test_the_page_stands_alone_and_hostile_names_are_text() -> None:
    rows = [made_row(task=HOSTILE, strategy=HOSTILE, rule=HOSTILE, value=HOSTILE, error=HOSTILE, model=HOSTILE)]
    page = Tags(comparison_page(rows, command=HOSTILE, left_out=[HOSTILE], notes=[HOSTILE]))
    known = "html head body main div meta title style h1 h2 p img table thead tr td th em details summary"
    assert {tag for tag, _ in page.tags} <= {*known.split()}
    outside = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "srcset", "href")]
    assert len(outside) == 1 and all(str(value).startswith("data:image/svg+xml;base64,") for value in outside)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 6, "shown unchanged"
    assert "arXiv 2601.07568" in page.text and "y_max 100.0 %" in page.text
