"""One choice of a request, for readers that are slow."""

import json
from functools import cache

from hypothesis import given, strategies as st
from pydantic_core import to_json

from dlstep.core import Request, SamplingParams, add
from dlstep.core.sequence import FinishInfo
from dlstep.serve.engine_loop import known_facts
from dlstep.serve.http.replies import ChoiceReader, Reply, read_choices, text_of
from dlstep.serve.http.schema import ChatRequest, CompletionRequest
from dlstep.serve.messages import Origin, Submit
from dlstep.serve.router.pending_requests import Head, PendingRequest
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
