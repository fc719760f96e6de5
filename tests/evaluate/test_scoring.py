"""Answers score as the tables of docs/evaluation.md say and as lm_eval says, and none of them can hang a scorer."""

import os
import signal
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from answer_suite import AWKWARD, SHOTS, TRAINING, Case, digest_of_prompts, frozen, frozen_cases, suite
from forms import BODY, WHOLE
from given import cases

from dlstep import LLM
from dlstep.evaluate import maths as maths_module
from dlstep.evaluate.documents import Document, drawn, with_examples
from dlstep.evaluate.items import items_of, prompt_of
from dlstep.evaluate.jail import Jail
from dlstep.evaluate.maths import Maths
from dlstep.evaluate.options import CODE_TASKS, EvalOptions
from dlstep.evaluate.scoring import Mark, code_mark, ending_mark, harness_program, maths_mark, number_mark, program_of
from dlstep.processes import Worker
from dlstep.text.detokenize import encode
from dlstep.text.rendering import render

CASES = cases()
CODE = 'FACTOR = 2\n\n\ndef double(n):\n    """Twice a number."""\n'
DOUBLE = Document(0, CODE, "", ("assert double(3) == 6", "assert double(4) == 8"), CODE, "double")


def mark_of(task: str, document: Document, answer: str, maths: Maths) -> Mark:
    """The mark of an answer that is no program."""
    if task == "math500":
        return maths_mark(document, answer, maths)
    return ending_mark(document, answer) if task == "questions" else number_mark(task, document, answer)


def test_the_page_has_enough_cases() -> None:
    assert len(CASES) == len(set(CASES)) > 60
    assert {task for task, _, _, _ in CASES} == {"shells", "gsm8k", "math500", "humaneval", "mbpp", "questions"}


@pytest.mark.parametrize(("task", "answer", "expected", "score"), [case for case in CASES if case[0] not in CODE_TASKS])
def test_an_answer_scores_as_the_page_says(task: str, answer: str, expected: str, score: float, maths: Maths) -> None:
    mark = mark_of(task, Document(0, "", expected), answer, maths)
    assert mark.score == score, mark


@pytest.mark.parametrize(("task", "answer", "score"), [(case[0], case[1], case[3]) for case in CASES if case[0] in CODE_TASKS])
def test_a_program_scores_as_the_page_says(task: str, answer: str, score: float, jail: Jail) -> None:
    mark = code_mark(task, DOUBLE, answer, jail)
    assert mark.score == score, mark


def test_both_readings_are_reported() -> None:
    document = Document(0, "", "36")
    assert number_mark("gsm8k", document, "#### 36 and 7").scores == {"flexible-extract": 0.0, "strict-match": 1.0}
    assert number_mark("gsm8k", document, "So 36.").scores == {"flexible-extract": 1.0, "strict-match": 0.0}
    assert number_mark("shells", document, "So 36.").scores == {"flexible-extract": 1.0}


@pytest.mark.parametrize(
    ("said", "gold", "score"),
    [
        ("$(1,2)$", "(1,2)", 1),
        ("1,000 cents", "1000", 1),
        ("$2 \\sqrt 2$", "\\sqrt{8}", 1),
        ("2516", "2516_8", 1),
        ("7", "8", 0),
    ],
)
def test_minervas_rule_compares_the_final_answer(said: str, gold: str, score: float, maths: Maths) -> None:
    answer = f"Final Answer: The final answer is {said}. I hope it is correct."
    assert maths_mark(Document(0, "", gold), answer, maths).scores["exact_match"] == score
    assert maths_mark(Document(0, "", gold), f"It is {said}.", maths).scores["exact_match"] == 0


def verdict(case: Case, maths: Maths) -> dict[str, Any]:
    """Return the verdict of this package in lm_eval's words, or the text of a program."""
    if case.task in CODE_TASKS:
        return {"program": harness_program(case.task, case.document, case.answer, chat=case.chat)}
    return dict(mark_of(case.task, case.document, case.answer, maths).scores)


def test_answers_score_as_lm_eval_says(maths: Maths) -> None:
    """A part of the thousand answers that `make clients` compares with lm_eval itself, which has said what is in the file."""
    chosen, said = frozen_cases(suite()), frozen("verdicts")
    assert {case.name for case in chosen} == set(said) and len(said) > 140
    assert {case.name: verdict(case, maths) for case in chosen} == said
    kinds = Counter((case.task, case.kind) for case in chosen)
    assert all(kinds[task, "garbled"] for task in ("gsm8k", "math500", "humaneval", "mbpp")) and kinds["gsm8k", "shuffled"]


def test_prompts_are_those_of_lm_eval(tmp_path: Any) -> None:
    (tmp_path / "GSM8K_train.json").write_text(str(TRAINING).replace("'", '"'))
    found: dict[str, str] = {}
    for task, numbers in SHOTS.items():
        for shots in numbers:
            for chat in (False, True):
                options = EvalOptions(tasks=(task,), shots=shots, chat=chat)
                prompts = [prompt_of(task, each, options) for each in with_examples(AWKWARD, task, "lm_eval", shots, tmp_path)]
                found[f"{task}, {shots} shots, {'chat' if chat else 'text'}"] = digest_of_prompts(prompts)
    assert found == frozen("prompts")


def test_an_answer_continues_the_turn_that_lm_eval_begins() -> None:
    template = "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}<end>\n{% endfor %}"
    template += "{% if add_generation_prompt %}<assistant>{% endif %}"
    engine = replace(LLM("tiny-bd", max_model_len=512).engine, chat_template=template)
    document = Document(0, "Double a number.", "", ("assert double(1) == 2",), CODE, "double")
    for task, end in (("humaneval", f"```python\n{CODE}\n"), ("mbpp", "<assistant>\n```python\n"), ("gsm8k", "<assistant>")):
        (item,) = items_of(EvalOptions(tasks=(task,), shots=0, chat=True), {task: [document]})
        text = render(template, item.prompt, {}, continues=item.prompt[-1]["role"] == "assistant")  # pyright: ignore
        assert text.endswith(end) and item.ids(engine) == encode(engine.tokenizer, text, add_special_tokens=False)


def test_examples_of_a_document_do_not_depend_on_those_beside_it(tmp_path: Any) -> None:
    (tmp_path / "GSM8K_train.json").write_text(str(TRAINING).replace("'", '"'))
    documents = drawn(AWKWARD, 5, tmp_path)
    assert drawn(AWKWARD[3:], 5, tmp_path) == documents[3:] and documents[0].examples != documents[1].examples
    with pytest.raises(ValueError, match=r"shots must be at most 50, the examples of GSM8K_train\.json, got 51"):
        drawn(AWKWARD, 51, tmp_path)
    with pytest.raises(ValueError, match=r"draws 5 worked examples from GSM8K_train\.json.* or choose --shots 0"):
        drawn(AWKWARD, 5, tmp_path / "nowhere")
    (tmp_path / "GSM8K_train.json").write_text('[{"question": "2?"}]')
    with pytest.raises(ValueError, match="must have a question and an answer in each entry, look at 'answer'"):
        drawn(AWKWARD, 1, tmp_path)


@pytest.mark.parametrize("task", CODE_TASKS)
def test_a_right_program_is_found_in_every_usual_form(task: str) -> None:
    program = "def double(n):\n    if n:\n        return 2 * n\n    return 0\n"
    answers = {name: form(program, "double") for name, form in WHOLE.items()}
    if task == "humaneval":
        answers |= {name: wrap("    if n:\n        return FACTOR * n\n    return 0\n") for name, wrap in BODY.items()}
    for name, answer in answers.items():
        names: dict[str, Any] = {}
        exec(compile(program_of(task, DOUBLE, answer), name, "exec"), names)
        assert names["double"](3) == 6 and names["double"](0) == 0, name


def test_without_a_jail_no_program_is_run() -> None:
    mark = code_mark("mbpp", DOUBLE, "raise SystemExit", None)
    assert (mark.score, mark.note, set(mark.scores)) == (0.0, "not run", {"any-form", "lm_eval"})


def test_a_program_that_lm_eval_would_pass_passes_in_any_form(jail: Jail) -> None:
    """lm_eval cuts at the first fence, so the body before it counts, whatever is written behind it."""
    answer = "    return 2 * n\n```\nWrong would be\n```python\ndef double(n):\n    return n\n```\n"
    assert code_mark("humaneval", DOUBLE, answer, jail, chat=True).scores == {"any-form": 1.0, "lm_eval": 1.0}
    assert code_mark("humaneval", DOUBLE, answer, jail).scores == {"any-form": 0.0, "lm_eval": 0.0}


def test_a_comparison_that_does_not_end_is_given_up_and_the_next_one_is_made() -> None:
    maths = Maths(seconds=1.0)
    try:
        hostile = Document(0, "", "12")
        mark = maths_mark(hostile, r"\boxed{10^{10^{10}}}", maths)
        assert mark.score == 0 and mark.note == "not compared: math-verify did not answer within 1 seconds and was killed"
        maths.seconds = 60.0
        assert maths_mark(hostile, r"\boxed{\frac{24}{2}}", maths).score == 1
        assert maths._worker is not None
        for fault, reason in ((signal.SIGSTOP, "did not answer within 1 seconds"), (signal.SIGKILL, "was killed by SIGKILL")):
            os.kill(maths._worker.pid, fault)
            maths.seconds = 1.0
            assert f"not compared: math-verify {reason}" in maths_mark(hostile, r"\boxed{\frac{36}{3}}", maths).note
            maths.seconds = 60.0
            assert maths_mark(hostile, r"\boxed{\frac{36}{3}}", maths).score == 1
    finally:
        maths.close()


@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_comparison_process_that_stops_at_its_start_is_replaced(
    fault: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Worker] = []

    class Struck(Worker):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self)
            monkeypatch.setattr(maths_module, "START", 2.0 if len(started) == 1 else 120.0)
            if len(started) == 1:
                os.kill(self.pid, fault)

    monkeypatch.setattr(maths_module, "Worker", Struck)
    maths = Maths(seconds=60.0)
    try:
        assert maths_mark(Document(0, "", "12"), r"\boxed{\frac{24}{2}}", maths).score == 1
    finally:
        maths.close()
    assert len(started) == 2
    assert ("did not answer within 2 seconds" if fault == signal.SIGSTOP else "SIGKILL") in started[0].reason


HOSTILE = (
    "{",
    r"\boxed{",
    "-",
    "1,",
    "9",
    "$",
    "#### ",
    "#### -",
    "```\n",
    "```a",
    "~",
    '"""',
    "a = ",
    "def f",
    " ",
    "\n",
    ".,$-",
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_are_read_in_linear_time(piece: str) -> None:
    """Four times the text takes about four times as long, not sixteen times; seconds of the processor are counted."""
    took: list[float] = []
    for size in (50_000, 200_000):
        text = piece * (size // len(piece))
        begin = time.process_time()
        number_mark("gsm8k", Document(0, "", "36"), text)
        ending_mark(Document(0, "", "no number"), text)
        for task in CODE_TASKS:
            program_of(task, DOUBLE, text)
            harness_program(task, DOUBLE, text, chat=True)
        took.append(time.process_time() - begin)
    assert took[1] < max(10 * took[0], 0.5), took
