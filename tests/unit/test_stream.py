"""Streams: pieces of an answer, drafts, and streams that are left."""

import pytest

from dlstep import SamplingParams
from dlstep.llm import Draft

PROMPT = "Max has 53 shells. Later Max buys 39 more."
LONG = SamplingParams(max_tokens=40, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=40, temperature=1.0, seed=7)


@pytest.mark.parametrize("params", [LONG, SAMPLED])
def test_a_stream_is_the_text_in_pieces(llm, params):
    output = llm.generate(PROMPT, params)[0]
    pieces = list(llm.stream(PROMPT, params))
    assert "".join(pieces) == output.text
    assert all(pieces)
    assert len(pieces) > 1


def test_a_stream_returns_its_output(llm):
    stream = llm.stream(PROMPT, LONG)
    with pytest.raises(StopIteration) as stop:
        while True:
            next(stream)
    assert stop.value.value == llm.generate(PROMPT, LONG)[0]


def test_drafts_show_the_window(llm):
    drafts = list(llm.stream_drafts(PROMPT, LONG))
    assert all(isinstance(draft, Draft) for draft in drafts)
    assert "".join(draft.piece for draft in drafts) == llm.generate(PROMPT, LONG)[0].text
    assert any(None in draft.window and any(draft.window) for draft in drafts)


def test_generating_while_streaming_changes_neither(llm):
    expected = llm.generate(PROMPT, LONG)[0].text
    pieces = []
    for piece in llm.stream(PROMPT, LONG):
        pieces.append(piece)
        assert llm.generate(PROMPT, LONG)[0].text == expected
    assert "".join(pieces) == expected
