"""One choice of a request, for readers that are slow."""

import json
from functools import cache
from itertools import pairwise

from hypothesis import given, strategies as st
from pydantic_core import to_json

from dlstep.core import Request, SamplingParams, add
from dlstep.core.sequence import FinishInfo
from dlstep.serve.engine_loop import known_facts
from dlstep.serve.http.replies import ChoiceReader, Reply, read_choices, text_of
from dlstep.serve.http.schema import ChatRequest, CompletionRequest
from dlstep.serve.messages import News, Origin, Submit
from dlstep.serve.router.pending_requests import Head, PendingRequest
from dlstep.stream import window_texts
from dlstep.text.detokenize import TextStream
from dlstep.views.frames import Frame

from ....helpers.serving import shadow_engine

CHAT = ChatRequest.model_validate({"messages": [{"role": "user", "content": "x"}], "n": 8})


@cache
def known():
    """The facts of an engine without a network."""
    engine = shadow_engine()
    return known_facts(engine)._replace(tokenizer=engine.tokenizer)


def reader(stops, **asked):
    """A reader of an answer that has no tokens yet."""
    pending = PendingRequest(Submit(Request(0, (5,), SamplingParams(stop=stops)), **asked), "key-0", 0.0, lambda: None)
    return ChoiceReader(0, pending, Head("completion", "m", False, False), known())


@given(cuts=st.lists(st.integers(0, 3), max_size=12), stops=st.sampled_from([(), ("a",), ("xy", "b")]), data=st.data())
def test_a_slow_reader_loses_no_frame(cuts, stops, data):
    choice = reader(stops, steps=True, origin=Origin(1, 0))
    pending, settled, frames = choice.pending, 0, []
    for seq, tokens in enumerate(data.draw(st.lists(st.lists(st.integers(3, 60), max_size=4), min_size=1, max_size=12))):
        settled += len(tokens)
        frames.append(Frame(seq, seq, seq, settled, tuple(tokens), (0.5,) * len(tokens)))
    pending.open(add(known().first, Request(0, (5,))).find(0), frames[0])
    pieces, left = [], frames[1:]
    for cut in [*cuts, len(left)]:
        for frame in left[:cut]:
            pending.append_frame(frame, 1.0)
        left = left[cut:]
        pieces += iter(choice.piece, None)
    assert not choice.ended
    pending.end(FinishInfo("length", 1 + settled), 2.0)
    pieces += iter(choice.piece, None)
    assert [piece.dlstep["seq"] for piece in pieces] == [*range(len(frames) + 1)], "the last frame has the finish reason"
    assert choice.ended
    assert "".join(map(text_of, pieces)) == choice.text
    assert "head" in pieces[0].dlstep and pieces[-1].dlstep["finish_reason"] == "length"


@st.composite
def reports(draw):
    """News of one answer, in groups that a reader finds at once."""
    ids = st.integers(3, 60)
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    found = []
    for nfe, size in enumerate(sizes, 1):
        tokens = tuple(draw(st.lists(ids, min_size=size, max_size=size)))
        last = nfe == len(sizes)
        unsettled = [] if last else draw(st.lists(st.none() | ids, max_size=3))
        window = tuple(unsettled), (0.5,) * len(unsettled)
        found.append(News(0, tokens, (0.5,) * size, window, nfe, nfe, 0, FinishInfo("length", 0) if last else None))
    cuts = sorted({0, len(found), *draw(st.lists(st.integers(0, len(found))))})
    return [found[start:stop] for start, stop in pairwise(cuts)]


@given(groups=reports(), drafts=st.booleans(), stops=st.sampled_from([(), ("a",), ("xy", "b")]))
def test_however_a_reader_is_delayed_it_loses_drafts_and_never_text(groups, drafts, stops):
    choice, pieces = reader(stops, drafts=drafts), []
    for group in groups:
        for news in group:
            choice.pending.apply(news, 0.0)
        if (piece := choice.piece()) is not None:
            pieces.append(piece)
    plain = TextStream(known().tokenizer, stops)
    every = [token for group in groups for news in group for token in news.tokens]
    assert "".join(map(text_of, pieces)) == choice.text == plain.close(every)
    assert choice.ended and ["finish_reason" in piece.dlstep for piece in pieces].index(True) == len(pieces) - 1
    if drafts:
        assert [piece.dlstep["seq"] for piece in pieces] == list(range(len(groups)))
        newest = [group[-1] for group in groups]
        for piece, news in zip(pieces, newest, strict=True):
            cells = piece.dlstep["cells"]
            assert [(cell[1], cell[2]) for cell in cells] == [*zip(*news.window, strict=True)]
            assert [cell[3] for cell in cells] == [*window_texts(news.window[0], known().first.config.spec.pieces)]


def test_the_answers_of_a_reply_are_encoded_one_after_another():
    """Encoding holds the interpreter, and so delays all other requests; log probabilities of all answers take much memory."""
    tokens, best = [5, 6, 7] * 50, tuple([(token, 0.1) for token in range(5, 25)])
    submit = Submit(Request(0, (5,), SamplingParams(top_logprobs=20)), probabilities=True)
    pending = PendingRequest(submit, "", 0.0, lambda: None, tokens, [0.5] * len(tokens), [best] * len(tokens))
    pending.end(FinishInfo("stop", len(tokens)), 1.0)
    for body in (CompletionRequest(prompt="x", n=8), CHAT):
        head = Head("completion" if isinstance(body, CompletionRequest) else "chat", "m", True)
        one, other = [Reply(head, body, read_choices([pending] * 8, head, known()), [""] * 8) for _ in range(2)]
        whole, read = one.whole(), [choice.ended for choice in one.choices]
        choices = [(choice, sum(reader.ended for reader in one.choices)) for choice in whole["choices"]]
        assert not any(read) and [number for _, number in choices] == [*range(1, 9)]
        assert json.loads(to_json(other.whole())) == whole | {"choices": [choice for choice, _ in choices]}
