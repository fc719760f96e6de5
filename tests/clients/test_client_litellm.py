"""Through the LiteLLM proxy, the official client gets the answers of `LLM.generate`."""

import json
import secrets
import subprocess
from concurrent.futures import ThreadPoolExecutor
from socket import create_server

import pytest
from openai import BadRequestError, OpenAI

from dlstep import SamplingParams
from dlstep.tiny import problems

from ..helpers.waiting import until
from .third_party import KEY, MODEL, START, answers, environment, llm, outside

PROMPTS = [problem.prompt for problem in problems(32, seed=13)]
TOKENS = 48

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def proxied(server, tmp_path_factory):
    """The official client of a LiteLLM proxy, which is configured with the server as an OpenAI-compatible one."""
    folder, key = tmp_path_factory.mktemp("litellm"), f"sk-{secrets.token_hex(24)}"
    model = {"model": f"openai/{MODEL}", "api_base": f"{server.url}/v1", "api_key": KEY}
    (folder / "config.yaml").write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": model}]}))
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(environment("litellm") / "litellm"), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    variables = {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, text=True, cwd=folder, env=outside() | variables)
    try:
        url = f"http://127.0.0.1:{port}/health/liveliness"
        until(lambda: process.poll() is not None or answers(url), START, log.read_text)
        with OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0) as found:
            yield found
    finally:
        process.kill()
        process.wait()


def completion(proxied, prompt, **more):
    """The text of a completion, joined if it is streamed. LiteLLM's last chunk has no text."""
    found = proxied.completions.create(model=MODEL, prompt=prompt, max_tokens=TOKENS, **more)
    chunks = found if "stream" in more else [found]
    return "".join(choice.text or "" for chunk in chunks for choice in chunk.choices)


def chat(proxied, prompt, **more):
    """The text of a chat's turn, joined if it is streamed."""
    messages = [{"role": "user", "content": prompt}]
    found = proxied.chat.completions.create(model=MODEL, messages=messages, max_tokens=TOKENS, **more)
    if "stream" not in more:
        return found.choices[0].message.content
    return "".join(choice.delta.content or "" for chunk in found for choice in chunk.choices)


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"stream": True, "extra_body": {"dlstep": {"stream": "drafts"}}}])
@pytest.mark.parametrize("answer", [completion, chat])
def test_texts_are_those_of_generate(proxied, answer, more, report):
    expected = [output.text for output in llm().generate(PROMPTS, SamplingParams(max_tokens=TOKENS))]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda prompt: answer(proxied, prompt, **more), PROMPTS)) == expected
    report(f"LiteLLM proxy: {len(PROMPTS)} equal texts of a {answer.__name__} with {more}")


def test_fields_go_through(proxied):
    prompt = PROMPTS[0]
    found = proxied.completions.create(model=MODEL, prompt=prompt, max_tokens=TOKENS, n=2, temperature=2.0, seed=7)
    each = [SamplingParams(max_tokens=TOKENS, temperature=2.0, seed=seed) for seed in (7, 8)]
    assert [choice.text for choice in found.choices] == [llm().generate(prompt, params)[0].text for params in each]
    options = {"accept_threshold": 0.3}
    params = SamplingParams(max_tokens=TOKENS, strategy_options=options, stop=("shells",))
    (expected,) = llm().generate(prompt, params)
    assert completion(proxied, prompt, stop=["shells"], extra_body={"dlstep": options}) == expected.text


def test_an_error_keeps_its_message(proxied):
    with pytest.raises(BadRequestError, match="accept_threshold must be at most 1"):
        completion(proxied, PROMPTS[0], extra_body={"dlstep": {"accept_threshold": 2}})
