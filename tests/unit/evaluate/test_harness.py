"""lm_eval's tasks over local files: its figures, the files of a run, and refusals."""

import json
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'dlstep[eval]'")

from dlstep import LLM, tiny
from dlstep.evaluate import read
from dlstep.evaluate.harness import LOCAL, DlstepLM, PublicTasks, local_tasks
from dlstep.evaluate.options import EvalOptions

from ...helpers.given import DATA, needs_data
from .running import engine, run

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with stories of the embedded models as problems of GSM8K."""
    folder = tmp_path_factory.mktemp("data")
    stories = [{"question": each.prompt, "ground_truth_answer": str(each.answer)} for each in tiny.problems(12, seed=3)]
    (folder / "GSM8K.json").write_text(json.dumps(stories))
    return str(folder)


def given(texts):
    """A function that returns these answers."""
    return lambda items: [{"answer": text, "finish": "stop", "error": ""} for text, _ in zip(texts, items, strict=True)]


def test_scores_are_those_of_lm_eval_on_the_same_task_files(data, tmp_path):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager, __file__ as lm_eval_tasks

    options = EvalOptions(("gsm8k",), data, out=str(tmp_path / "run"), shots=0, dataset_limit=8, max_tokens=48)
    run(options)
    found = read(options.out)
    manager = TaskManager(
        include_defaults=False, include_path=[Path(lm_eval_tasks).with_name("gsm8k"), LOCAL], metadata={"data": data}
    )
    results = simple_evaluate(
        DlstepLM(llm=LLM.of(engine())), tasks=["local_gsm8k"], num_fewshot=0, limit=8, task_manager=manager,
        gen_kwargs="max_gen_toks=48", bootstrap_iters=0,
    )  # fmt: skip
    samples = results["samples"]["gsm8k"]
    rows = list(found.rows.values())
    assert len(rows) == 8 and {row["document"]: row["answer"] for row in rows} == {
        sample["doc_id"]: sample["resps"][0][0] for sample in samples
    }
    assert {row["document"]: row["prompt"] for row in rows} == {
        sample["doc_id"]: sample["arguments"][0][0] for sample in samples
    }
    for name, score in results["results"]["gsm8k"].items():
        if name.startswith("exact_match,"):
            assert score == sum(row["scores"][name] for row in rows) / 8
    assert all(next(iter(row["scores"])) == "exact_match,flexible-extract" for row in rows)


@needs_data
def test_right_answers_of_every_local_task_are_right(sandboxed):
    """Half of the answers are the expected ones. lm_eval's own rules score them."""
    from dlstep.evaluate.local_tasks import mbpp

    programs = [each["code"] for each in mbpp(str(DATA))["test"].select(range(2))]
    right = {
        "gsm8k": ["The answer is #### 36", "7"],
        "gsm8k_cot_zeroshot": ["So it is 36.", "7"],
        "minerva_math500": ["Final Answer: The final answer is $(3,\\frac{\\pi}{2})$. I hope it is correct.", "$p$"],
        "humaneval": [
            "    return any(abs(a - b) < threshold for i, a in enumerate(numbers) for b in numbers[:i])",
            "    return []",
        ],
        "mbpp": [programs[0], "def f(): pass"],
        "mbpp_instruct": [f"\n{programs[0]}\n```", "\ndef f(): pass\n```"],
    }
    right["humaneval_instruct"] = right["humaneval"]
    assert sorted(right) == local_tasks()
    tasks = PublicTasks(EvalOptions(tuple(right), str(DATA), shots=0, dataset_limit=2))
    assert {name: facts["count"] for name, facts in tasks.problems.items()} == dict.fromkeys(right, 2)
    lines = tasks.scored(engine(), given([text for name in right for text in right[name]]), ())
    assert {(line["task"], line["document"]): line["score"] for line in lines} == {
        (name, number): 1.0 - number for name in right for number in range(2)
    }


def test_texts_are_encoded_by_the_tokenizer():
    model = DlstepLM(llm=LLM.of(engine()))
    assert model.tok_encode("Max has 53") == [*model.tokenizer.encode("Max has 53")]


def test_a_failed_answer_has_no_scores(tmp_path):
    problems = [{"question": text, "ground_truth_answer": "3"} for text in ("How many? " * 500, "How many?")]
    (tmp_path / "GSM8K.json").write_text(json.dumps(problems))
    found = read(run(EvalOptions(("gsm8k",), str(tmp_path), out=str(tmp_path / "run"), shots=0, max_tokens=8)))
    failed, wrong = found.rows.values()
    assert (failed["scores"], failed["score"], failed["note"]) == ({}, 0.0, failed["error"]) and failed["error"]
    assert wrong["scores"] == {"exact_match,flexible-extract": 0.0, "exact_match,strict-match": 0.0}


def test_worked_examples_come_from_the_training_file(data, tmp_path):
    with pytest.raises(ValueError, match=r"draws 5 worked examples .* which has 0: put GSM8K_train.json .* --shots 0"):
        PublicTasks(EvalOptions(("gsm8k",), data))
    (tmp_path / "GSM8K.json").write_bytes((Path(data) / "GSM8K.json").read_bytes())
    (tmp_path / "GSM8K_train.json").write_text("".join(f'{{"question": "q{n}", "answer": "#### {n}"}}\n' for n in range(6)))
    asked = []
    PublicTasks(EvalOptions(("gsm8k",), str(tmp_path), shots=2, dataset_limit=1)).scored(
        engine(), lambda items: asked.extend(item.prompt for item in items) or given(["7"])(items), ()
    )
    assert asked[0].count("Question: q") == 2 and asked[0].endswith("\nAnswer:")


@pytest.mark.parametrize(
    "task, text, message",
    [
        ("arc_easy", "[]", "task arc_easy reads no files of --data: choose from gsm8k, .*, or omit --data to use the hub"),
        ("minerva_math500", "[]", "this task reads MATH500.json, but --data .* has no such file"),
        ("gsm8k", "{", "holds no JSON"),
        ("gsm8k", "[]", "must hold problems: a JSON list"),
        ("gsm8k", '[{"question": "a"}]', "GSM8K.json, entry 1 is not a problem of this task, look at 'ground_truth_answer'"),
    ],
)
def test_data_that_do_not_suit_are_refused(task, text, message, tmp_path):
    (tmp_path / "GSM8K.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        PublicTasks(EvalOptions((task,), str(tmp_path)))
