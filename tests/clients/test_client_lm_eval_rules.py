"""Prompts and scores are those of lm_eval, whose own tasks render and score the same documents and answers."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlstep import LLM, SamplingParams
from dlstep.evaluate.documents import Document, documents_of, with_examples
from dlstep.evaluate.items import prompt_of
from dlstep.evaluate.maths import WORKER
from dlstep.evaluate.options import EvalOptions
from dlstep.evaluate.scoring import ending_mark, harness_program, maths_mark, number_mark, program_of
from dlstep.tiny import problems

from ..helpers.given import DATA, FILES
from ..unit.evaluate.answer_suite import (
    AWKWARD,
    SHOTS,
    TRAINING,
    Case,
    digest_of_prompts,
    frozen,
    frozen_cases,
    keep_frozen,
    suite,
)
from .third_party import CLIENT, environment, outside

ANEW = "the rules of lm_eval differ from the stored ones: DLSTEP_FREEZE=1 make clients stores them again"
TASKS = {"gsm8k": "gsm8k", "math500": "minerva_math500", "humaneval": "humaneval", "mbpp": "mbpp"}
REAL = all((DATA / name).is_file() for name in FILES)
WORKER.seconds = 60.0  # the machine may be busy

Report = Callable[[str], None]
pytestmark = pytest.mark.clients


def of_lm_eval(jobs: list[dict[str, Any]], folder: Path) -> list[Any]:
    """Return the verdicts of lm_eval on jobs."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    script = [str(Path(__file__).with_name("lm_eval_rules.py")), str(folder / "jobs.json"), str(folder)]
    command = [str(environment("lm_eval") / "python"), *script]
    told = subprocess.run(command, env=outside() | offline, capture_output=True, text=True, timeout=CLIENT, check=False)
    assert told.returncode == 0, told.stderr[-10_000:]
    return json.loads((folder / "found.json").read_text())


def as_theirs(task: str, document: Document) -> dict[str, Any]:
    """A document as lm_eval's data set has it."""
    match task:
        case "gsm8k":
            return {"question": document.question, "answer": f"So.\n#### {document.gold}"}
        case "math500":
            return {"problem": document.question, "solution": f"Thus \\boxed{{{document.gold}}}"}
        case "humaneval":
            return {"prompt": document.code, "test": document.tests[-1], "entry_point": document.entry}
        case _:
            return {
                "text": document.question,
                "code": document.gold,
                "test_list": [test for test in document.tests if test.startswith("assert")],
            }


def documents(task: str) -> list[Document]:
    """Documents with awkward texts, and those of the benchmark where its file is."""
    found = [*AWKWARD, *(documents_of(task, DATA, 60) if REAL else ())]
    return [replace(each, number=number) for number, each in enumerate(found)]


@pytest.mark.parametrize("chat", [False, True])
def test_prompts_are_those_of_lm_eval(tmp_path: Path, chat: bool, report: Report) -> None:
    (tmp_path / "GSM8K_train.json").write_text(json.dumps(TRAINING))
    own = {task: documents(task) for task in TASKS}
    names = {task: f"{name}_instruct" if chat and task in ("humaneval", "mbpp") else name for task, name in TASKS.items()}
    jobs = [
        {"task": names[task], "documents": [as_theirs(task, each) for each in found], "shots": SHOTS[task], "chat": chat}
        | ({"training": TRAINING} if task == "gsm8k" else {})
        for task, found in own.items()
    ]
    compared = 0
    for task, answer in zip(TASKS, of_lm_eval(jobs, tmp_path), strict=True):
        for shots, rows in zip(SHOTS[task], answer, strict=True):
            options = EvalOptions(tasks=(task,), shots=shots, chat=chat)
            params = options.params(task, ())
            shown = with_examples(own[task], task, "lm_eval", shots, tmp_path)
            for document, row in zip(shown, rows, strict=True):
                prompt = prompt_of(task, document, options)
                if isinstance(prompt, str):
                    assert prompt == row["context"]
                else:
                    theirs = json.loads(row["context"])
                    assert [dict(turn) for turn in prompt] == theirs["messages"]
                    assert theirs["add_generation_prompt"] == (prompt[-1]["role"] == "user")
                assert (params.max_tokens, list(params.stop)) == (row["most"], row["until"])
                compared += 1
            own_texts = [row["context"] if not chat else json.loads(row["context"])["messages"] for row in rows[: len(AWKWARD)]]
            name = f"{task}, {shots} shots, {'chat' if chat else 'text'}"
            keep_frozen("prompts", {name: digest_of_prompts(own_texts)})
            assert frozen("prompts")[name] == digest_of_prompts(own_texts), ANEW
        assert EvalOptions(tasks=(task,), chat=chat).shots_of(task) == SHOTS[task][-1], "the default is lm_eval's"
    report(f"prompts, {'chat' if chat else 'text'}: {compared} equal")


def ours(case: Case) -> dict[str, Any]:
    """The verdicts of this package on an answer, under lm_eval's names; of code the program."""
    if case.task == "gsm8k":
        return dict(number_mark("gsm8k", case.document, case.answer).scores)
    if case.task == "math500":
        return dict(maths_mark(case.document, case.answer).scores)
    return {"program": harness_program(case.task, case.document, case.answer, chat=case.chat)}


def theirs(cases: list[Case], folder: Path) -> list[dict[str, Any]]:
    """The verdicts of lm_eval on answers."""
    groups: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        groups.setdefault(f"{TASKS[case.task]}{'_instruct' * case.chat}", []).append(place)
    jobs = [
        {
            "task": name,
            "documents": [as_theirs(cases[place].task, cases[place].document) for place in places],
            "answers": [cases[place].answer for place in places],
        }
        for name, places in groups.items()
    ]
    found: list[dict[str, Any]] = [{} for _ in cases]
    for places, verdicts in zip(groups.values(), of_lm_eval(jobs, folder), strict=True):
        for place, verdict in zip(places, verdicts, strict=True):
            found[place] = verdict
    return found


# Answers on which this package differs, by the reason. None is known.
DIFFERENCES: dict[str, str] = {}


def test_a_thousand_answers_score_as_in_lm_eval(tmp_path: Path, report: Report) -> None:
    cases = suite()
    assert len(cases) == 1000
    found = theirs(cases, tmp_path)
    apart = [(case, verdict, ours(case)) for case, verdict in zip(cases, found, strict=True) if ours(case) != verdict]
    assert [each for each in apart if each[0].answer not in DIFFERENCES] == []
    kept = {case.name: verdict for case, verdict in zip(frozen_cases(cases), frozen_cases(found), strict=True)}
    keep_frozen("verdicts", kept)
    assert frozen("verdicts") == kept, ANEW
    rights = Counter(name for verdict in found for name, value in verdict.items() if value == 1)
    for case in cases:
        if case.kind not in ("gold", "shuffled", "garbled", "adversarial"):
            assert "return" in program_of(case.task, case.document, case.answer)
    report(f"1,000 answers score alike, right: {dict(rights)}")


@pytest.mark.skipif(not REAL, reason=f"no {', '.join(FILES)} in {DATA}: set DLSTEP_DATA to a folder with them")
def test_expected_and_shuffled_answers_of_the_benchmarks_score_as_in_lm_eval(tmp_path: Path, report: Report) -> None:
    cases: list[Case] = []
    for task, form in (("gsm8k", "So it is {}."), ("math500", "Final Answer: The final answer is ${}$. I hope it is correct.")):
        found = documents_of(task, DATA, None)
        cases += [Case(task, each, form.format(each.gold), "gold") for each in found]
        cases += [
            Case(task, each, f"\\boxed{{{other.gold}}}", "shuffled") for each, other in zip(found, found[7:], strict=False)
        ]
    verdicts = theirs(cases, tmp_path)
    apart = [(case.document.number, case.answer, verdict, ours(case)) for case, verdict in zip(cases, verdicts, strict=True)]
    assert [each for each in apart if each[2] != each[3]] == []
    golds = [
        (case.task, name)
        for case, verdict in zip(cases, verdicts, strict=True)
        for name, v in verdict.items()
        if v == 1 and case.kind == "gold"
    ]
    report(f"benchmarks: {len(cases)} answers score alike; expected answers that are right {dict(Counter(golds))}")


def test_answers_of_a_fast_tiny_model_score_alike_everywhere(tmp_path: Path, report: Report) -> None:
    asked = problems(120, seed=0)
    params = SamplingParams(max_tokens=64, strategy_options={"accept_threshold": 0.3})
    texts = [output.text for output in LLM("tiny-bd").generate([each.prompt for each in asked], params, progress=False)]
    found = [Document(number, each.prompt, str(each.answer)) for number, each in enumerate(asked)]
    job = {"task": "gsm8k", "documents": [as_theirs("gsm8k", each) for each in found], "answers": texts}
    (verdicts,) = of_lm_eval([job], tmp_path)
    scores = [verdict["flexible-extract"] for verdict in verdicts]
    assert scores == [number_mark("shells", each, text).score for each, text in zip(found, texts, strict=True)]
    assert scores == [ending_mark(each, text).score for each, text in zip(found, texts, strict=True)]
    assert 0.3 < sum(scores) / 120 < 0.6
    report(f"120 answers of tiny-bd at accept_threshold=0.3: {sum(scores) / 120:.1%} right by shells, questions and lm_eval")
