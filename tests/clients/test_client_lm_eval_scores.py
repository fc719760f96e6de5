"""A model with the gold answer to a random half of the problems scores one half in every way of evaluation.

lm_eval's own rules score the first two doors: its tasks gsm8k and minerva_math500, read from the benchmark files.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dlstep import LLM
from dlstep.evaluate import EvalOptions, evaluate_with

from ..helpers.serving import served
from .scripted_gold import scripted_engine
from .test_client_lm_eval_in_process import in_process
from .third_party import client, environment

COUNT = 100
FILES = {"gsm8k": "GSM8K.json", "math500": "MATH500.json"}
# The tasks of lm_eval that read local lines of JSON. Its own files hold prompts, filters and scorers.
TASKS = {
    "gsm8k": ("gsm8k/gsm8k.yaml", ("exact_match,strict-match", "exact_match,flexible-extract")),
    "math500": ("minerva_math/minerva_math500.yaml", ("exact_match,none", "math_verify,none")),
}
LOCAL = """\
include: {include}
task: local_{task}
tag: null
dataset_path: json
dataset_name: null
dataset_kwargs: {{data_files: {{test: {file}}}}}
training_split: null
fewshot_split: null
test_split: test
num_fewshot: 0
"""

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif("DLSTEP_DATA" not in os.environ, reason="DLSTEP_DATA names no folder with the benchmark files"),
]


def gold_of(task: str, gold: str) -> str:
    """A right answer in the form that the task's examples have."""
    if task == "gsm8k":
        return f"It is {gold}.\n#### {gold}"
    return f"So we get $\\boxed{{{gold}}}$.\nFinal Answer: The final answer is ${gold}$. I hope it is correct."


def written(task: str) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The first problems of a task, and the answers to them: gold for a drawn half, a number that is none for the others."""
    data = Path(os.environ["DLSTEP_DATA"])
    problems = json.loads((data / FILES[task]).read_text())[:COUNT]
    right = set(Random(29).sample(range(COUNT), COUNT // 2))
    golds = [each["ground_truth_answer"] if number in right else "-987654321" for number, each in enumerate(problems)]
    return problems, {each["question"]: gold_of(task, gold) for each, gold in zip(problems, golds, strict=True)}


def local_tasks(folder: Path, problems: dict[str, list[dict[str, str]]]) -> list[str]:
    """Write the tasks that read these problems; the arguments of lm_eval that choose them."""
    (packages,) = (environment("lm_eval").parent / "lib").glob("python*/site-packages")
    (folder / "tasks").mkdir(parents=True)
    for task, several in problems.items():
        rows = [
            {"question": each["question"], "answer": f"#### {each['ground_truth_answer']}"}
            if task == "gsm8k"
            else {"problem": each["question"], "solution": f"$\\boxed{{{each['ground_truth_answer']}}}$"}
            for each in several
        ]
        (folder / f"{task}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        text = LOCAL.format(include=packages / "lm_eval" / "tasks" / TASKS[task][0], task=task, file=folder / f"{task}.jsonl")
        (folder / "tasks" / f"{task}.yaml").write_text(text)
    names = ",".join(f"local_{task}" for task in problems)
    return ["--tasks", names, "--include_path", str(folder / "tasks"), "--log_samples", "--output_path", "found"]


def found(folder: Path, task: str) -> tuple[dict[str, str], dict[str, float]]:
    """Texts by question, and lm_eval's scores."""
    (samples,) = (folder / "found").rglob(f"samples_local_{task}_*.jsonl")
    (results,) = (folder / "found").rglob("results_*.json")
    rows: list[dict[str, Any]] = list(map(json.loads, samples.read_text().splitlines()))
    texts = {row["doc"].get("question", row["doc"].get("problem")): row["resps"][0][0] for row in rows}
    scores = json.loads(results.read_text())["results"][f"local_{task}"]
    return texts, {name: scores[name] for name in TASKS[task][1]}


def test_half_gold_answers_score_one_half_everywhere(tmp_path: Path, report: Callable[[str], None]) -> None:
    given = {task: written(task) for task in TASKS}
    answers = {question: text for _, texts in given.values() for question, text in texts.items()}
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    scripted = (
        f"from pathlib import Path; from dlstep import LLM; from tests.clients.scripted_gold import scripted_from; "
        f"LLM.from_config = lambda config: LLM.of(scripted_from(Path({str(tmp_path / 'answers.json')!r}))); "
    )
    for door in ("inside", "http"):
        tasks = local_tasks(tmp_path / door, {task: problems for task, (problems, _) in given.items()})
        if door == "inside":
            told = in_process(tmp_path / door, *tasks, before=scripted)
            assert told.returncode == 0, told.stdout[-20_000:]
            continue
        with served(scripted_engine(answers)) as server:
            model = f"model=scripted,base_url={server.url}/v1/completions,num_concurrent=8,tokenizer_backend=None"
            client(
                "lm_eval",
                "lm_eval",
                "run",
                "--model",
                "local-completions",
                "--model_args",
                model,
                *tasks,
                folder=tmp_path / door,
            )
    data, out = os.environ["DLSTEP_DATA"], str(tmp_path / "eval")
    options = EvalOptions(tasks=tuple(TASKS), data=data, dataset_limit=COUNT, shots=0, out=out)
    evaluate_with(LLM.of(scripted_engine(answers)), options)
    own = [json.loads(line) for line in (tmp_path / "eval" / "answers.jsonl").read_text().splitlines()]
    for task, (problems, texts) in given.items():
        inside, scores = found(tmp_path / "inside", task)
        assert (inside, scores) == found(tmp_path / "http", task)
        rows = [row for row in own if row["task"] == task]
        assert texts == inside == {problems[row["document"]]["question"]: row["answer"] for row in rows}
        assert set(scores.values()) == {0.5}
        for reading in rows[0]["scores"]:
            assert sum(row["scores"][reading] for row in rows) == COUNT / 2, reading
        report(f"{task}: {len(rows)} texts equal, lm_eval says {scores} at both doors, dlstep eval 0.5")
