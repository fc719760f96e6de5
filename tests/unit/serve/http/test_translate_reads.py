"""`/v1/reads` returns the probabilities that `LLM.read` returns, and refuses by name what cannot be read."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from dlstep import SamplingParams

from ....helpers.serving import Paced, served, shadow_engine, tiny_llm
from .conftest import error_of

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
OTHER = "Ann has 21 apples. Later Ann buys 64 more. How many apples does Ann have?"
TEMPLATE = ["53", ["+", "-"], "39=", [*"123456789"], "2", [" shells", " apples"], "."]
URL, GOOD = "/v1/reads", {"prompt": STORY, "template": TEMPLATE}


@pytest.fixture(scope="module")
def server():
    with served(tiny_llm().engine) as running:
        yield running


def slots_of(data):
    return [dict(zip(slot["labels"], slot["probabilities"], strict=True)) for slot in data["slots"]]


def likely(slots):
    """The most probable label of each slot."""
    return [max(slot, key=slot.__getitem__) for slot in slots]


def test_probabilities_are_those_of_read(server):
    prompts = [STORY, OTHER]
    body, again = (server.post(URL, **more, prompt=prompts, template=TEMPLATE) for more in ({"model": "tiny-bd"}, {}))
    assert body["object"] == "reads" and [each["index"] for each in body["data"]] == [0, 1]
    for answer in (body, again):
        for output, data in zip(tiny_llm().read(prompts, TEMPLATE), answer["data"], strict=True):
            for slot, expected in zip(slots_of(data), output.slots, strict=True):
                assert slot == pytest.approx(expected, abs=2e-5)
    assert body["usage"]["prompt_tokens"] > again["usage"]["cached_tokens"] > 0 == body["usage"]["cached_tokens"]
    server.until_idle()


def test_reads_and_answers_run_at_the_same_time(server):
    expected = [output.text for output in tiny_llm().generate([STORY, OTHER], SamplingParams(max_tokens=32))]
    read = [likely(output.slots) for output in tiny_llm().read([STORY, OTHER], TEMPLATE)]

    def ask(number):
        prompt = (STORY, OTHER)[number % 2]
        text = server.choice(prompt=prompt, max_tokens=32)["text"]
        (data,) = server.post(URL, prompt=prompt, template=TEMPLATE)["data"]
        return text, likely(slots_of(data))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(24))) == [(expected[number % 2], read[number % 2]) for number in range(24)]
    server.until_idle()


@pytest.mark.parametrize(
    "change, param, code",
    [
        ({"template": ["53"]}, "template", "invalid_value"),
        ({"template": [["shells", "apples"]]}, "template.0", "invalid_value"),
        ({"template": []}, "template", "out_of_range"),
        ({"template": "53"}, "template", "invalid_type"),
        ({"template": ["a", ["1", "2"]] * 400}, "prompt", "context_length_exceeded"),
        ({"template": ["a" * 40_000, ["1", "2"]]}, "template", "context_length_exceeded"),
        ({"prompt": ""}, "prompt", "missing"),
        ({"prompt": [10**6]}, "prompt", "unknown_token_id"),
        ({"prompt": ["x"] * 5000}, "prompt", "out_of_range"),
        ({"model": "gpt-5"}, "model", "model_not_found"),
        ({"max_tokens": 3}, "max_tokens", "unknown_field"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(server, change, param, code):
    with server.http() as http:
        error = error_of(http.post(URL, json=GOOD | change))
    assert (error["param"], error["code"]) == (param, code)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_failing_model_is_tried_again_and_then_ends_the_read_alone(failures):
    driver = Paced(tiny_llm().engine.driver)
    with served(replace(tiny_llm().engine, driver=driver)) as server:
        driver.failures = [RuntimeError("out of memory")] * failures
        assert server.post(URL, status=200 if failures == 1 else 500, **GOOD)
        assert server.post(URL, **GOOD)
        assert server.router.deaths == 0


@pytest.mark.parametrize("shared", [False, True])
def test_keys_share_pages_only_with_share_prefix_cache(shared):
    with served(shadow_engine(max_model_len=256), keys=("one", "two"), share_prefix_cache=shared) as server:
        found = [server.post(URL, key=key, prompt=[5] * 64, template=[["1", "2"]]) for key in ("one", "two", "one")]
    assert [each["usage"]["cached_tokens"] > 0 for each in found] == [False, shared, True]
