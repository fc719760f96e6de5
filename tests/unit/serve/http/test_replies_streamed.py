"""However the tokens of an answer are divided into updates, the chunks of its stream accumulate to the whole response."""

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from dlstep.core import Config, Request, SamplingParams, Spec, init
from dlstep.core.sequence import FinishInfo
from dlstep.models.description import pieces
from dlstep.serve.http.replies import ChoiceReader, Reply
from dlstep.serve.http.schema import CompletionRequest
from dlstep.serve.http.tool_calls import FORMATS, GEMMA, HERMES
from dlstep.serve.messages import Facts, News, Submit
from dlstep.serve.router.pending_requests import Head, PendingRequest
from dlstep.strategies.autoregressive import Autoregressive

KINDS = ("special", "added", "spelled")
CALLS = {HERMES: '{"name": "add", "arguments": {"a": "é"}}', GEMMA: 'call:add{a:<|"|>é<|"|>}'}
TEXTS = ["a", "b", " ", "\n", "é", '{"', '"}', "{", "}", "thought", *(f"<0x{byte:02X}>" for byte in "€\U0001f600".encode())]


@cache
def tokenizer_of(form, kind):
    """A tokenizer with byte fallback whose marks are special tokens, other added tokens, or spelled by two tokens each."""
    halves = [half for mark in form.tokens for half in (mark[:3], mark[3:])]
    call = CALLS[form]
    vocabulary = dict.fromkeys(["?", *TEXTS, *halves, call[:9], call[9:], "<think", ">", "</think>"[:5], "ink>"])
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(vocabulary)}, unk_token="?"))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    if kind != "spelled":
        marks = [AddedToken(mark, special=kind == "special", normalized=False) for mark in form.tokens]
        (backend.add_special_tokens if kind == "special" else backend.add_tokens)(marks)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


def ids_of(form, kind, *texts):
    """The ids of texts, each a token, a mark, or a call without its marks."""
    known = tokenizer_of(form, kind).get_vocab()
    call, found = CALLS[form], []
    for text in texts:
        halves = [call[:9], call[9:]] if text == call else [text[:3], text[3:]]
        found += [known[text]] if text in known else [known[half] for half in halves]
    return found


def reader(form, kind, head, stops, thinks, *, drafts=False):
    """A reader of an answer that has no tokens yet."""
    tokenizer = tokenizer_of(form, kind)
    template = " ".join([*form.template, *form.tokens])
    prompt = tuple(tokenizer.encode(f"a{form.think}", add_special_tokens=False) if thinks and kind != "spelled" else [1])
    submit = Submit(
        Request(0, prompt, SamplingParams(stop=stops)), probabilities=head.logprobs or head.token_ids, drafts=drafts
    )
    spec = Spec(mask_id=0, eos_ids=(), vocab_size=len(tokenizer), pieces=pieces(tokenizer))
    pending = PendingRequest(submit, "key-0", 0.0, lambda: None)
    facts = Facts(init(Config(spec), Autoregressive()), None, "", template, 0, "model", tokenizer)
    return ChoiceReader(0, pending, head, facts)


def news(tokens, nfe, end):
    best = tuple([((token, 0.5), (3, 0.25), (0, 0.2)) for token in tokens])
    return News(0, tuple(tokens), (0.5,) * len(tokens), ((), ()), nfe, nfe, 0, end, best=best)


def entries(logs):
    """The entries of log probabilities, one per token, of a chat or a completion."""
    return logs["content"] if "content" in logs else [*zip(*[logs[name] for name in sorted(logs) if logs[name]], strict=True)]


def accumulated(head, choice, updates, end, late=()):
    """The choice that a client of the stream accumulates; after some updates, the reader is too slow to read."""
    texts = dict.fromkeys(("text", "content", "reasoning_content"), "")
    found = {"index": 0, "finish_reason": None, **texts, "calls": [], "logs": [], "ids": []}
    reply = Reply(head, CompletionRequest(prompt="x"), [choice], [""])
    for nfe, tokens in enumerate(updates, 1):
        choice.pending.apply(news(tokens, nfe, end if nfe == len(updates) else None), 0.0)
        if nfe in late and nfe < len(updates):
            continue
        piece = choice.piece()
        assert (piece or not choice.pending.submit.drafts) and choice.piece() is None
        if piece is None:
            continue
        body = json.loads(reply.piece(choice, piece).removeprefix(b"data: "))
        for part in body["choices"]:
            found["text"] += part.get("text", "")
            for name in ("content", "reasoning_content"):
                found[name] += part.get("delta", {}).get(name, "")
            for call in part.get("delta", {}).get("tool_calls", ()):
                if "id" in call:
                    assert call.pop("index") == len(found["calls"])
                    found["calls"].append(call)
                else:
                    found["calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            found["logs"] += entries(part["logprobs"] or {})
            found["ids"] += part.get("token_ids", [])
            assert found["finish_reason"] is None
            found["finish_reason"] = part["finish_reason"]
        found["dlstep"] = body.get("dlstep")
    return found


def whole(head, choice, tokens, nfe, end):
    """The choice of the whole response, in the same form."""
    choice.pending.apply(news(tokens, nfe, end), 0.0)
    (found,) = Reply(head, CompletionRequest(prompt="x"), [choice], [""]).whole()["choices"]
    message = found.get("message", {})
    return {
        "index": 0,
        "finish_reason": found["finish_reason"],
        "text": found.get("text", ""),
        "content": message.get("content") or "",
        "reasoning_content": message.get("reasoning_content", ""),
        "calls": message.get("tool_calls", []),
        "logs": entries(found["logprobs"] or {}),
        "ids": found.get("token_ids", []),
        "dlstep": {"index": 0, **found["dlstep"]},
    }


HEADS = [Head("completion", "m", True, False, name="1")] + [
    Head("chat", "m", True, name="1", call=call, functions=functions)
    for call, functions in ((None, ()), (None, ("add",)), ("", ()), ("add", ()))
]


@settings(max_examples=10 * settings.default.max_examples)
@given(
    form=st.sampled_from(FORMATS),
    kind=st.sampled_from(KINDS),
    head=st.sampled_from(HEADS),
    stops=st.lists(st.sampled_from(["b", "€", "\n\n", "</think>", "<tool_call>", "}}", "a{"]), max_size=2).map(tuple),
    thinks=st.booleans(),
    length=st.booleans(),
    late=st.sets(st.integers(1, 12)),
    drafts=st.booleans(),
    data=st.data(),
)
def test_a_stream_accumulates_to_the_whole(form, kind, head, stops, thinks, length, late, drafts, data):
    special = ids_of(form, kind, "<end>")[0]
    some = st.sampled_from([*form.tokens, CALLS[form], *TEXTS]).map(lambda text: ids_of(form, kind, text))
    called = st.just(ids_of(form, kind, form.tokens[2], CALLS[form], form.tokens[3]))
    euro = st.just(ids_of(form, kind, *(f"<0x{byte:02X}>" for byte in "€".encode())))
    any_id = st.integers(0, special).map(lambda token: [token])
    parts = [*data.draw(st.lists(some | called | euro | any_id, max_size=14)), data.draw(euro)[: data.draw(st.integers(0, 3))]]
    tokens = [token for part in parts for token in part]
    cuts = sorted({0, len(tokens), *data.draw(st.lists(st.integers(0, len(tokens)), max_size=12))})
    updates = [*[tokens[begin:end] for begin, end in pairwise(cuts)], *data.draw(st.sampled_from([[], [[]]]))] or [[]]
    end = FinishInfo("length" if length else "stop", 1 + len(tokens))
    head = replace(head, logprobs=data.draw(st.booleans()), by_id=data.draw(st.booleans()), token_ids=data.draw(st.booleans()))
    streamed = accumulated(head, reader(form, kind, head, stops, thinks, drafts=drafts), updates, end, late)
    expected = whole(head, reader(form, kind, head, stops, thinks), tokens, len(updates), end)
    assert expected.pop("dlstep").items() <= streamed.pop("dlstep").items() and streamed == expected
    assert streamed["ids"] == (tokens if head.token_ids else []) and len(streamed["logs"]) == head.logprobs * len(tokens)


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("functions", [(), ("add",)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMATS)
def test_marks_are_found_whatever_kind_of_token_they_are(form, kind, functions, thinks):
    head, (think, thought, call, called) = Head("chat", "m", False, False, functions=functions), form.tokens[:4]
    opened = [] if thinks and kind != "spelled" else ids_of(form, kind, think, *(["thought"] if form is GEMMA else []))
    body = ids_of(form, kind, call, CALLS[form], called)
    tokens = opened + ids_of(form, kind, "b", thought, "\n", "a") + body + ids_of(form, kind, "<end>")
    found = whole(head, reader(form, kind, head, (), thinks), tokens, 1, FinishInfo("stop", 1 + len(tokens)))
    assert found["reasoning_content"] == "b"
    assert found["content"] == ("a" if functions else f"a{call}{CALLS[form]}{called}")
    calls = [(made["function"]["name"], json.loads(made["function"]["arguments"])) for made in found["calls"]]
    assert calls == [("add", {"a": "é"}) for _ in functions]
    assert found["finish_reason"] == ("tool_calls" if functions else "stop")


@pytest.mark.parametrize("stops, given, finish", [((), '{"a": "é"}', "tool_calls"), (("é",), '{"a": "', "stop")])
def test_a_forced_call_that_a_stop_string_cuts_is_not_finished(stops, given, finish):
    head, tokens = Head("chat", "m", False, False, call=""), ids_of(HERMES, "special", CALLS[HERMES])
    found = whole(head, reader(HERMES, "special", head, stops, thinks=False), tokens, 1, FinishInfo("stop", 1 + len(tokens)))
    assert [made["function"] for made in found["calls"]] == [{"name": "add", "arguments": given}]
    assert found["finish_reason"] == finish
