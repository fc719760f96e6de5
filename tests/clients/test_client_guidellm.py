"""GuideLLM measures the server without an error, and has received the texts of `LLM.generate`."""

import json

import pytest

from dlstep import SamplingParams
from dlstep.tiny import path, problems

from .third_party import KEY, MODEL, client, llm

COUNT, TOKENS = 64, 48
# GuideLLM asks for answers of an exact length.
PARAMS = SamplingParams(max_tokens=TOKENS, ignore_eos=True)

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("endpoint", ["completions", "chat/completions"])
def test_no_request_is_an_error(server, tmp_path, endpoint, report):
    prompts = [problem.prompt for problem in problems(COUNT, seed=12)]
    rows = [json.dumps({"prompt": prompt, "output_tokens_count": TOKENS}) for prompt in prompts]
    (tmp_path / "problems.jsonl").write_text("\n".join(rows))
    line = (
        f"run --backend kind=openai_http,target={server.url},model={MODEL},api_key={KEY},request_format=/v1/{endpoint}"
        f" --profile kind=concurrent,streams=16 --constraint kind=max_requests,count={COUNT}"
        f" --data kind=json_file,path=problems.jsonl --tokenizer kind=huggingface_auto,model={path(MODEL)}"
        f" --metrics kind=generative,sample_size={COUNT} --output kind=json,path=found.json --disable-progress"
    )
    client("guidellm", "guidellm", *line.split(), folder=tmp_path)
    (benchmark,) = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert totals == {"successful": COUNT, "errored": 0, "incomplete": 0, "total": COUNT}
    texts = sorted(request["output"] for request in benchmark["requests"]["successful"])
    assert texts == sorted(output.text for output in llm().generate(prompts, PARAMS))
    report(f"GuideLLM /v1/{endpoint}: {totals['successful']} requests, {totals['errored']} errored, all texts equal")
