"""From bodies to requests of the engine: too many prompts, texts that wait, and unknown options."""

import gc
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from tokenizers import processors

from dlstep.serve.engine_loop import known_facts
from dlstep.serve.http import app, translate
from dlstep.serve.http.schema import CompletionRequest
from training.tokenizer import EOS_ID, build_tokenizer

from ....helpers.serving import COMPLETIONS, served, shadow_engine


def statuses(server, count, at_once, **body):
    """How many requests were answered with which status."""
    with server.http() as http, ThreadPoolExecutor(at_once) as threads:

        def answer(number):
            response = http.post("/v1/completions", json={"prompt": f"{number}", **body})
            if response.status_code == 429:
                assert int(response.headers["retry-after"]) >= 1
                assert response.json()["error"]["code"] == "queue_full"
            return response.status_code

        return Counter(threads.map(answer, range(count)))


def test_prompts_that_are_too_many_are_not_encoded(monkeypatch):
    encoded = []
    encode = translate.encode

    def encodes(texts, prompt, **more):
        encoded.append(prompt)
        return encode(texts, prompt, **more)

    monkeypatch.setattr(translate, "encode", encodes)
    with served(max_queue=8) as server:
        assert server.post(COMPLETIONS, status=400, prompt=["x"] * 9)["error"]["param"] == "prompt"
        assert not encoded
        assert server.choice(prompt=["x"] * 8, max_tokens=4)
        assert len(encoded) == 8


def test_texts_do_not_pile_up_before_they_are_encoded(monkeypatch):
    monkeypatch.setattr(app, "MOST_TEXTS", 4)
    gate, encode = Event(), translate.encode

    def encodes(*given, **more):
        gate.wait(20)
        return encode(*given, **more)

    monkeypatch.setattr(translate, "encode", encodes)
    with served(max_queue=4) as server, ThreadPoolExecutor(8) as threads:
        under_way = [threads.submit(statuses, server, 1, 1, max_tokens=4) for _ in range(8)]
        server.until(lambda: sum(each.done() for each in under_way) == 4)
        gate.set()
        assert sum((each.result() for each in under_way), Counter()) == {200: 4, 429: 4}
        assert "dlstep_requests_refused_total 4.0" in server.router.metrics.text().decode()


def test_sampling_parameters_that_the_strategy_sets_itself_are_ignored():
    """As in the sampler of the model's authors, whose temperature follows its schedule. Clients send these fields always."""
    sent = {"temperature": 1, "top_p": 0.95, "top_k": 40, "min_p": 0.1}
    good = {"prompt": "x", "max_tokens": 12, "seed": 3}
    for strategy in ("diffusion_gemma", "multi_bd"):  # every other strategy samples at the given temperature
        with served(shadow_engine(strategy=strategy)) as server:
            plain, asked = (server.choice(**good | more) for more in ({}, sent))
            assert plain["text"] and (plain == asked) == (strategy == "diffusion_gemma")
            assert server.post(COMPLETIONS, status=400, **good | {"temperature": -1})["error"]["param"] == "temperature"


@pytest.mark.parametrize("given", [None, True, False])
def test_special_tokens_are_added_to_texts_unless_the_body_declines(given):
    tokenizer = build_tokenizer()
    adding = processors.TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", EOS_ID)])
    tokenizer.backend_tokenizer.post_processor = adding
    facts = known_facts(shadow_engine())._replace(tokenizer=tokenizer, most_answers=4)
    plain = tuple(tokenizer.encode("ab", add_special_tokens=False))
    body = {"prompt": "ab", "add_special_tokens": given}
    for found in (
        translate.encoded_prompt(facts, "ab", given),
        translate.translated(facts, CompletionRequest(**body, max_tokens=4)).submits[0].request.prompt,
    ):
        assert found == (plain if given is False else (EOS_ID, *plain))


@pytest.mark.full
def test_nothing_is_kept_of_options_that_a_client_made_up():
    """Of patterns `re` keeps hundreds, of any length."""
    tracemalloc.start()
    try:
        with served() as server:
            sizes = []
            for number in range(12):
                server.post(COMPLETIONS, status=400, prompt="x", dlstep={f"{number}".rjust(200_000, "x"): 1})
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
            # A thread may still hold the body that was answered last; kept patterns take over a megabyte each.
            assert min(sizes[-4:]) - min(sizes[:4]) < 1_000_000, sizes
    finally:
        tracemalloc.stop()
