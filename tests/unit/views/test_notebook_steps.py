"""The view of steps: what the script gets is the recording, and no token can leave the place where it is text."""

import base64
import json
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st

from dlstep import SamplingParams, views
from dlstep.views.frames import recording

from ...end_to_end.page.hostile import TEXTS
from ...helpers.shadow_llm import make_llm, spec

MARKUP = (
    "</script>", "<script>", "<!--", "-->", "]]>", "</div>", '"', "'", "&lt;", "&#60;", "\x00", "\u202e", "\u2028", "\\u003c",
)  # fmt: skip
HOSTILE = st.lists(st.one_of(st.sampled_from((*TEXTS, *MARKUP)), st.text(max_size=4)), min_size=1, max_size=4).map("".join)


class Parts(HTMLParser):
    """The tags, attributes and texts of HTML, and its scripts."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.names, self.scripts, self.texts = [], set(), [], []
        self.data, self.inside = "", ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        self.data = dict(attrs).get("data-steps") or self.data
        self.inside = tag

    def handle_endtag(self, tag):
        del tag
        self.inside = ""

    def handle_data(self, data):
        (self.scripts if self.inside == "script" else self.texts).append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def unpacked(html):
    """The data that the script gets."""
    return json.loads(zlib.decompress(base64.b64decode(Parts(html).data)))


@pytest.fixture(scope="module")
def trace():
    """Two answers, the second of which began later and was aborted."""
    session = make_llm().session()
    session.submit(list(range(3, 20)), SamplingParams(max_tokens=16, ignore_eos=True))
    session.step()
    late = session.submit(list(range(30, 40)), SamplingParams(max_tokens=16, ignore_eos=True))
    session.step()
    session.step()
    session.abort(late)
    session.run()
    return session.trace


def spelled(trace, texts):
    """The trace of a model whose tokens have these texts."""
    pieces = tuple(texts[token % len(texts)].encode("utf-8", "surrogatepass") for token in range(spec().vocab_size))
    config = trace.first.config
    return replace(trace, first=replace(trace.first, config=replace(config, spec=replace(config.spec, pieces=pieces))))


@given(texts=st.lists(HOSTILE, min_size=1, max_size=6))
def test_no_token_is_markup(trace, texts):
    plain, html = Parts(views.steps_html(trace)), views.steps_html(spelled(trace, texts))
    parts = Parts(html)
    assert html.isascii() and "\x00" not in html
    found, expected = ([tag for tag in each.tags if tag != "span"] for each in (parts, plain))
    assert (found, parts.names, parts.scripts) == (expected, plain.names, plain.scripts)
    told = unpacked(html)
    assert [run["frames"] for run in told["runs"]] == [run["frames"] for run in recording(spelled(trace, texts))["runs"]]
