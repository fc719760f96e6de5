"""The page of a comparison."""

import re
from html.parser import HTMLParser

from dlstep.evaluate.comparison_html import comparison_html

from ...helpers.comparisons import row


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
    rows = [row(task=HOSTILE, strategy=HOSTILE, rule=HOSTILE, value=HOSTILE, error=HOSTILE, model=HOSTILE)]
    page = Tags(comparison_html(rows, command=HOSTILE, left_out=[HOSTILE], notes=[HOSTILE]))
    known = "html head body main div meta title style h1 h2 p picture source img table thead tr td th ul li pre em"
    assert {tag for tag, _ in page.tags} <= {*known.split()}
    outside = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "srcset", "href")]
    assert len(outside) == 2 and all(str(value).startswith("data:image/svg+xml;base64,") for value in outside)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 6, "shown unchanged"
    assert "arXiv 2601.07568" in page.text and "W(y) = min(exp(-3 (1 - y / y_max)), 1)" in page.text
    assert "y_max of the AUP is 100.0 %" in page.text and re.search(r"dlstep \S+, torch \S+, Python \S+", page.text)
