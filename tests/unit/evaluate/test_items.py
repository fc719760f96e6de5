"""Prompts of items."""

from dataclasses import replace
from typing import Any

from dlstep import LLM
from dlstep.evaluate.documents import Document, with_examples
from dlstep.evaluate.items import items_of, prompt_of
from dlstep.evaluate.options import EvalOptions
from dlstep.text.chat import render
from dlstep.text.detokenize import encode

from .answer_suite import AWKWARD, SHOTS, TRAINING, digest_of_prompts, frozen

CODE = 'FACTOR = 2\n\n\ndef double(n):\n    """Twice a number."""\n'


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
        text = render(engine.tokenizer, template, item.prompt, continues=item.prompt[-1]["role"] == "assistant")  # pyright: ignore
        assert text.endswith(end) and item.ids(engine) == encode(engine.tokenizer, text, add_special_tokens=False)
