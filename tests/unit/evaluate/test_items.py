"""The two tasks of this package: their problems, prompts and scores."""

from dataclasses import replace

import pytest

from dlstep import LLM, tiny
from dlstep.core import SamplingParams
from dlstep.evaluate.items import Item, evaluation_items, read_problems, scored
from dlstep.evaluate.options import EvalOptions


def test_the_stories_are_those_of_the_seed_and_asked_as_they_are():
    options = EvalOptions(dataset_limit=3, problem_seed=2)
    engine = LLM("tiny-bd").engine
    items = evaluation_items(engine, options, read_problems(options))
    stories = tiny.problems(3, 2)
    assert [(item.number, item.prompt, item.gold) for item in items] == [
        (number, story.prompt, str(story.answer)) for number, story in enumerate(stories)
    ]
    assert all(item.special for item in items)


def test_a_conversation_is_rendered_once_with_its_special_tokens():
    template = "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}<end>\n{% endfor %}<assistant>"
    engine = replace(LLM("tiny-bd", max_model_len=512).engine, chat_template=template)
    options = EvalOptions(dataset_limit=1, chat=True)
    (item,) = evaluation_items(engine, options, read_problems(options))
    assert item.prompt == f"<user>{tiny.problems(1, 0)[0].prompt}<end>\n<assistant>" and not item.special
    with pytest.raises(ValueError, match="neither the tokenizer nor the family of the model has a chat template"):
        evaluation_items(replace(engine, chat_template=None), options, read_problems(options))


@pytest.mark.parametrize(
    "task, gold, answer, found, scores",
    [
        ("shells", "28", "88-23=65 shells. 65-37=28 shells.", "28", (1.0,)),
        ("shells", "28", "Leo228 shells", "228", (0.0,)),
        ("questions", "1,007", "so\n#### 1007", "1007", (1.0, 1.0)),
        ("questions", "7", "#### 7, or $8.", "$8.", (0.0, 1.0)),
        ("questions", "7", "none", "", (0.0, 0.0)),
        ("questions", "Paris.", "It is Paris. ", "Paris", (1.0,)),
        ("questions", "Paris", "Rome", "Rome", (0.0,)),
    ],
)
def test_numbers_count_as_in_lm_eval_and_other_answers_by_their_end(task, gold, answer, found, scores):
    row = {"task": task, "document": 0, "options": {}, "answer": answer}
    line = scored(Item(task, 0, "", SamplingParams(), gold=gold), row)
    assert (line["found"], tuple(line["scores"].values()), line["score"]) == (found, scores, scores[0])
