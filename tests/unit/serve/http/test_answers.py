"""Streams: the contract of drafts, slow readers, pings, and usage."""

import json
import time
from dataclasses import replace

from dlstep.core import updates
from dlstep.stream import window_texts

from ....helpers.serving import CHAT, COMPLETIONS, Paced, questions, served, shadow_engine, tiny_llm
from .test_server import raw, request

DRAFTS = {"stream": "drafts"}


def check_contract(stream, plain):
    """The contract of a stream with drafts of one choice, against the plain answer."""
    drafts = [event["dlstep"] for event in stream]
    assert [draft["seq"] for draft in drafts] == list(range(len(drafts)))
    settled = [draft["settled"] for draft in drafts]
    assert settled == sorted(settled)
    assert "".join(choice["text"] for event in stream for choice in event["choices"]) == plain["text"]
    last = {name: drafts[-1][name] for name in ("step", "nfe", "finish_reason", "tokens_per_forward")}
    assert last == plain["dlstep"] and drafts[-1]["cells"] == []
    for draft in drafts:
        assert [cell[0] for cell in draft["cells"]] == [*range(draft["settled"], draft["settled"] + len(draft["cells"]))]
    ends = [choice["finish_reason"] for event in stream for choice in event["choices"]]
    assert ends[-1] == plain["finish_reason"] and set(ends[:-1]) <= {None}


def of_session(prompt):
    """The state of a manually stepped session after each forward pass, by their number."""
    session, found = tiny_llm().session(), {}
    session.submit(prompt)
    before, settled = session.state, 0
    while not before.done:
        after = session.step()
        for update in updates(before, after):
            settled += len(update.tokens)
            texts = window_texts(update.window[0], after.config.spec.pieces)
            cells = [[place, *cell] for place, cell in enumerate(zip(*update.window, texts, strict=True), settled)]
            found[update.sequence.nfe] = (update.sequence.steps, settled, cells)
        before = after
    return found


def test_drafts_keep_their_contract_and_show_the_steps_of_the_decode():
    engine = tiny_llm().engine
    with served(replace(engine, driver=Paced(engine.driver, 0.03))) as server:
        for prompt in questions(4):
            told = server.events(prompt=prompt, dlstep=DRAFTS)
            check_contract(told, server.choice(prompt=prompt))
            steps = of_session(prompt)
            for event in told:
                draft = event["dlstep"]
                assert (draft["step"], draft["settled"], draft["cells"]) == steps[draft["nfe"]]
            assert len(told) > 2, "a reader that is faster than the engine sees most of the steps"


def test_usage_comes_last_or_with_every_chunk(tiny):
    prompt = questions(1)[0]
    used = tiny.post(COMPLETIONS, prompt=prompt)["usage"]
    told = tiny.events(prompt=prompt, stream_options={"include_usage": True})
    assert told[-1]["choices"] == [] and ["usage" in event for event in told].count(True) == 1
    assert told[-1]["usage"] | {"prompt_tokens_details": None} == used | {"prompt_tokens_details": None}
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    counts = [event["usage"]["completion_tokens"] for event in tiny.events(prompt=prompt, **options)]
    assert counts == sorted(counts) and counts[-1] == used["completion_tokens"]
    chat = tiny.events(CHAT, messages=[{"role": "user", "content": prompt}], **options)
    for told in (chat, tiny.events(prompt=prompt, echo=True, **options)):
        assert all(event["usage"]["prompt_tokens"] > 0 for event in told) and told[0]["usage"]["completion_tokens"] == 0


def test_silence_is_filled_with_comments_that_the_client_skips():
    with served(shadow_engine(seconds=0.05), ping_seconds=0.01) as server:
        body = {"prompt": "quiet", "max_tokens": 8, "stream": True}
        with server.http() as http:
            assert ": ping\n\n" in http.post(COMPLETIONS, json=body).text
        with server.client() as client:
            assert all(chunk.choices for chunk in client.completions.create(model="shadow", **body))


def test_a_slow_reader_gets_the_whole_text():
    """It waits before each read, through a small window."""
    with served(shadow_engine(num_pages=600, max_model_len=2048, max_num_batched_tokens=4096)) as server:
        body, text = {"prompt": "slow", "max_tokens": 1500, "stream": True, "dlstep": DRAFTS}, b""
        with raw(server.url, request(body, more=b"Connection: close\r\n"), small=True) as connection:
            while part := connection.recv(65536):
                text += part
                time.sleep(0.001)
        told = [
            json.loads(part[part.index("{") : part.rindex("}") + 1])
            for part in text.decode().split("\n\n")
            if "data: {" in part
        ]
        check_contract(told, server.choice(prompt="slow", max_tokens=1500))
