"""The view of steps: what the script gets is the recording, and no token can leave the place where it is text."""

import base64
import json
import re
import zlib
from dataclasses import replace

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


def parts_of(html):
    """The tags, names of attributes and scripts of HTML whose texts hold no unescaped bracket or quote."""
    tags = re.findall(r"<[^>]*>", html)
    names = {name for tag in tags for name in re.findall(r'\s([\w-]+)="', tag)}
    kinds = [kind for kind in re.findall(r"<(/?[^\s>]*)", html) if kind.strip("/") != "span"]
    return kinds, names, re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)


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
    html = views.steps_html(spelled(trace, texts))
    assert html.isascii() and "\x00" not in html
    assert parts_of(html) == parts_of(views.steps_html(trace))
    (data,) = re.findall('data-steps="([^"]*)"', html)
    told = json.loads(zlib.decompress(base64.b64decode(data)))
    assert [run["frames"] for run in told["runs"]] == [run["frames"] for run in recording(spelled(trace, texts))["runs"]]
