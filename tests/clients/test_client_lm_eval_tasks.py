"""Kinds of tasks of lm_eval in process: answers that continue a given beginning, choices by likelihood, whole documents."""

import json
import shutil
from functools import cache

import pytest
from transformers import AutoTokenizer

from dlstep import LLM, SamplingParams, tiny
from dlstep.engine.likelihood import Likelihoods, MonteCarlo
from dlstep.tiny import problems

from .test_client_lm_eval_in_process import in_process

PROBLEMS = problems(24, seed=11)
PREFIX = "So the answer is "
TURNS = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}</{{ message.role }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
HEAD = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: problems.jsonl}}}}
test_split: test
"""
TASKS = {
    "asked": "output_type: generate_until\ndoc_to_text: '{{prompt}}'\ndoc_to_target: '{{answer}}'\n"
    "description: 'Be brief.'\ngeneration_kwargs: {until: [], max_gen_toks: 16, temperature: 0.0}\n",
    "choice": "output_type: multiple_choice\ndoc_to_text: '{{prompt}}'\ndoc_to_choice: '{{choices}}'\ndoc_to_target: 0\n"
    "target_delimiter: ''\n",
    "document": "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{prompt}}'\n",
}
TASKS["prefixed"] = TASKS["asked"] + f"gen_prefix: '{PREFIX}'\n"
KINDS = {
    "canvas": "model=tiny-llada,mc_num=32,mc_batch=8,mc_seed=3",
    "exact": "model=tiny-bd,decoding_strategy=multi_bd,block_size=1",
}

pytestmark = pytest.mark.clients


@cache
def choices():
    """For each problem the first equation of a model's answer, and the same with another last digit."""
    outputs = LLM("tiny-llada").generate([each.prompt for each in PROBLEMS], SamplingParams(max_tokens=16))
    right = [output.text.partition(" ")[0] for output in outputs]
    assert all(text.count("=") == 1 and text[-1].isdigit() for text in right)
    return [[text, text[:-1] + str((int(text[-1]) + 3) % 10)] for text in right]


def told(folder, model, *tasks, options=()):
    """lm_eval's run on these tasks, which answers the problems in the folder."""
    (folder / "tasks").mkdir()
    rows = [
        {"prompt": each.prompt, "answer": str(each.answer), "choices": own}
        for each, own in zip(PROBLEMS, choices(), strict=True)
    ]
    (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in tasks:
        (folder / "tasks" / f"{name}.yaml").write_text(HEAD.format(name=name) + TASKS[name])
    chosen = ["--tasks", ",".join(tasks), "--include_path", str(folder / "tasks"), "--log_samples", "--output_path", "found"]
    return in_process(folder, "--model_args", model, *chosen, *options)


def logged(folder, model, *tasks, options=()):
    """The logged rows of each task, in the order of the problems, and the results."""
    ended = told(folder, model, *tasks, options=options)
    assert ended.returncode == 0, ended.stdout[-20_000:]
    (results,) = (folder / "found").rglob("results_*.json")
    rows = {}
    for name in tasks:
        (samples,) = (folder / "found").rglob(f"samples_{name}_*.jsonl")
        rows[name] = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda row: row["doc_id"])
    return rows, json.loads(results.read_text())


def test_a_given_beginning_is_continued(tmp_path):
    """The prompts are those of `HFLM.apply_chat_template`, which passes its arguments on to the tokenizer like this."""
    folder = tmp_path / "model"
    shutil.copytree(tiny.path("tiny-llada"), folder)
    (folder / "chat_template.jinja").write_text(TURNS)
    rows, results = logged(tmp_path, f"model={folder}", "asked", "prefixed", options=("--apply_chat_template",))
    tokenizer, llm = AutoTokenizer.from_pretrained(folder), LLM(folder)
    for name, beginning in (("asked", ""), ("prefixed", PREFIX)):
        found = [row["arguments"]["gen_args_0"]["arg_0"] for row in rows[name]]
        talks = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": each.prompt}] for each in PROBLEMS]
        for talk in talks:
            talk += [{"role": "assistant", "content": beginning}] if beginning else []
        kinds = {"add_generation_prompt": not beginning, "continue_final_message": bool(beginning)}
        assert found == [tokenizer.apply_chat_template(talk, tokenize=False, **kinds) for talk in talks]
        assert all(text.endswith(f"<assistant>{beginning.rstrip()}") for text in found)
        prompts = [tokenizer.encode(text, add_special_tokens=False) for text in found]
        outputs = llm.generate(prompts, SamplingParams(max_tokens=16))
        assert [row["resps"][0][0] for row in rows[name]] == [output.text for output in outputs]
    info = results["config"]["dlstep"]
    assert info["answers"] == 2 * len(PROBLEMS) and info["forward_passes_per_answer"] > 1 and info["seconds"] > 0
    assert info["strategy"].startswith("DualCache") and info["fingerprint"] == llm.engine.first.config.spec.fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_choices_are_made_by_likelihood(tmp_path, kind, report):
    tasks = ("choice", "document") if kind == "exact" else ("choice",)
    rows, results = logged(tmp_path, KINDS[kind], *tasks)
    info, exact = results["config"]["dlstep"], kind == "exact"
    llm = LLM("tiny-bd", decoding_strategy="multi_bd", block_size=1) if exact else LLM("tiny-llada")
    tokenizer, likelihoods = llm.engine.tokenizer, Likelihoods(llm.engine, MonteCarlo(32, 8, 3))
    right = 0
    for problem, row, texts in zip(PROBLEMS, rows["choice"], choices(), strict=True):
        # As `_encode_pair` does: the blank behind the prompt belongs to the answer, and may be part of a token.
        prompt = tokenizer.encode(problem.prompt.rstrip())
        whole = [tokenizer.encode(problem.prompt + text) for text in texts]
        pairs = [(tuple(prompt), tuple(each[len(prompt) :])) for each in whole]
        expected = likelihoods.of(pairs)
        found = [resps[0] for resps in row["resps"]]
        assert [float(value) for value, _ in found] == pytest.approx([each.value for each in expected], abs=1e-3)
        assert [str(same) == "True" for _, same in found] == [each.greedy for each in expected]
        right += expected[0].value > expected[1].value
    assert results["results"]["choice"]["acc,none"] == pytest.approx(right / len(PROBLEMS)) and right > len(PROBLEMS) // 2
    assert info["exact"] is exact and info["forward_passes"] > 0 and ("mc_num" in info) is not exact
    error = info["standard_error"]
    assert error == {"mean": 0.0, "max": 0.0} if exact else 0 < error["mean"] < error["max"]
    report(f"{KINDS[kind]}: {right} of {len(PROBLEMS)} choices, {info}")
    if exact:
        begin = llm.engine.first.config.spec.eos_ids[:1]  # a text stands behind the id that ends texts
        pairs = [(begin, tuple(tokenizer.encode(each.prompt))) for each in PROBLEMS]
        values = [each.value for each in likelihoods.of(pairs)]
        assert [float(row["resps"][0][0]) for row in rows["document"]] == pytest.approx(values, abs=1e-2)


@pytest.mark.parametrize(
    "model, task, sentence",
    [
        (
            "model=tiny-bd",
            "choice",
            "error: tiny-bd is decoded by MultiBD, for which no likelihood of a given text is published",
        ),
        (
            "model=tiny-llada",
            "document",
            "error: a canvas model has no published estimator for the likelihood of a whole document",
        ),
        ("model=tiny-llada,mc_num=10", "choice", "error: mc_num=10 must be a multiple of mc_batch=32"),
    ],
)
def test_refusals_are_sentences(tmp_path, model, task, sentence):
    ended = told(tmp_path, model, task)
    assert ended.returncode != 0 and sentence in ended.stdout, ended.stdout[-5000:]
    assert "Traceback" not in ended.stdout
