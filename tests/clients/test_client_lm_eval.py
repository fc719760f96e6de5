"""lm_eval over HTTP: its texts are those of `LLM.generate`, and so is its score."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dlstep import SamplingParams
from dlstep.tiny import problems, score

from .third_party import HERE, MODEL, Server, client, llm

PROBLEMS = problems(100, seed=11)
# The generation_kwargs of shells/shells.yaml.
PARAMS = SamplingParams(max_tokens=64, stop=("\n\n",), strategy_options={"accept_threshold": 0.3})

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("kind", ["completions", "chat-completions"])
def test_the_score_is_that_of_generate(server: Server, tmp_path: Path, kind: str, report: Callable[[str], None]) -> None:
    rows = [json.dumps({"prompt": problem.prompt, "answer": str(problem.answer)}) for problem in PROBLEMS]
    (tmp_path / "problems.jsonl").write_text("\n".join(rows))
    path = {"completions": "completions", "chat-completions": "chat/completions"}[kind]
    model = f"model={MODEL},base_url={server.url}/v1/{path},num_concurrent=16,tokenizer_backend=None"
    chat = ["--apply_chat_template"] if kind == "chat-completions" else []
    tasks = ["--tasks", "shells", "--include_path", str(HERE / "shells"), "--log_samples", "--output_path", "found"]
    client("lm_eval", "lm_eval", "run", "--model", f"local-{kind}", "--model_args", model, *chat, *tasks, folder=tmp_path)

    (samples,) = (tmp_path / "found").rglob("samples_*.jsonl")
    (results,) = (tmp_path / "found").rglob("results_*.json")
    texts = {row["doc"]["prompt"]: row["resps"][0][0] for row in map(json.loads, samples.read_text().splitlines())}
    found = json.loads(results.read_text())["results"]["shells"]["exact_match,flexible-extract"]

    outputs = llm().generate([problem.prompt for problem in PROBLEMS], PARAMS, progress=False)
    assert [texts[problem.prompt] for problem in PROBLEMS] == [output.text for output in outputs]
    right = [score(problem, output.text).answer for problem, output in zip(PROBLEMS, outputs, strict=True)]
    assert found == pytest.approx(sum(right) / len(right), abs=1e-9)
    assert any(right) and not all(right), "some answers are wrong, so that the score says something"
    report(f"lm_eval local-{kind}: {len(texts)} texts equal, score {found:.3f} on both sides")
