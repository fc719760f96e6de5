"""lm_eval in process, lm_eval over HTTP and `dlstep eval` give the same texts and score on the same documents."""

import json
import sysconfig

import pytest

from dlstep.cli import main
from dlstep.tiny import problems

from .third_party import HERE, MODEL, client, environment, ran

COUNT, SEED = 100, 11
# The sources of this package, and behind the client's own packages those that it lacks: torch and what comes with it.
HARNESS = (
    "import sys; sys.path[:0] = [{src!r}, {root!r}]; sys.path.append({site!r}); "
    "{before}from dlstep.cli.lm_eval import main; main()"
)
TASK = ["--tasks", "shells", "--include_path", str(HERE / "shells"), "--log_samples", "--output_path", "found"]
KINDS = {"completions": [], "chat-completions": ["--apply_chat_template"]}  # of requests over HTTP, and options

pytestmark = pytest.mark.clients


def in_process(folder, *arguments, before=""):
    """lm_eval with dlstep as a model of its own; statements may run before."""
    root = HERE.parents[1]
    paths = {"src": str(root / "src"), "root": str(root), "site": sysconfig.get_path("purelib")}
    command = HARNESS.format(**paths, before=before)
    program = [str(environment("lm_eval") / "python"), "-c", command]
    return ran([*program, "run", "--model", "dlstep", *arguments], folder, OMP_NUM_THREADS="1")


def found(folder):
    """The texts by prompt, and the score."""
    (samples,) = (folder / "found").rglob("samples_*.jsonl")
    (results,) = (folder / "found").rglob("results_*.json")
    texts = {row["doc"]["prompt"]: row["resps"][0][0] for row in map(json.loads, samples.read_text().splitlines())}
    return texts, json.loads(results.read_text())["results"]["shells"]["exact_match,flexible-extract"]


def test_all_ways_give_one_score(server, tmp_path, report):
    rows = [json.dumps({"prompt": each.prompt, "answer": str(each.answer)}) for each in problems(COUNT, seed=SEED)]
    for name in ("inside", *KINDS):
        (tmp_path / name).mkdir()
        (tmp_path / name / "problems.jsonl").write_text("\n".join(rows))
    told = in_process(tmp_path / "inside", "--model_args", f"model={MODEL}", *TASK)
    assert told.returncode == 0, told.stdout[-20_000:]
    for kind, options in KINDS.items():
        url = f"{server.url}/v1/{kind.replace('-', '/')}"
        chosen = ["--model_args", f"model={MODEL},base_url={url},num_concurrent=16,tokenizer_backend=None", *options, *TASK]
        client("lm_eval", "lm_eval", "run", "--model", f"local-{kind}", *chosen, folder=tmp_path / kind)
    out = tmp_path / "eval"
    line = f"eval --model {MODEL} --problem_seed {SEED} --dataset_limit {COUNT} --accept_threshold 0.3 --out {out} --stop"
    assert main([*line.split(), "\n\n"]) == 0
    own = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    scores = [json.loads(line)["score"] for line in (out / "scores.jsonl").read_text().splitlines()]
    texts, score = found(tmp_path / "inside")
    assert {kind: found(tmp_path / kind) for kind in KINDS} == dict.fromkeys(KINDS, (texts, score))
    assert {row["prompt"]: row["answer"] for row in own} == texts
    assert score == pytest.approx(sum(scores) / COUNT, abs=1e-9) and 0 < score < 1
    report(f"lm_eval in process, over HTTP as {', '.join(KINDS)}, and dlstep eval: {len(texts)} texts equal, score {score:.3f}")
