"""`LLM.read`: the probabilities of labels at the slots of a template."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dlstep import LLM
from dlstep.engine.reads import Reads

from ..helpers.serving import tiny_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
OTHER = "Ann has 21 apples. Later Ann buys 64 more. How many apples does Ann have?"
TEMPLATE = ["53", ["+", "-"], "39=", [*"123456789"], "2", [" shells", " apples"], "."]


def rounded(outputs):
    return [[{label: round(value, 4) for label, value in slot.items()} for slot in output.slots] for output in outputs]


def test_the_labels_of_an_answer_are_probable():
    (output,) = tiny_llm().read(STORY, TEMPLATE)
    assert output.prompt == STORY
    assert [max(slot, key=lambda label: slot[label]) for slot in output.slots] == ["+", "9", " shells"]
    assert [[*slot] for slot in output.slots] == [part for part in TEMPLATE if isinstance(part, list)]
    assert all(sum(slot.values()) == pytest.approx(1.0) for slot in output.slots)


def test_prompts_are_read_together_and_by_several_threads():
    llm = tiny_llm()
    ids = llm.engine.tokenizer.encode(f"{OTHER}\n") if llm.engine.tokenizer else []
    one, two, three = llm.read([STORY, OTHER, ids], TEMPLATE)
    assert one.slots != two.slots and three.prompt == tuple(ids) and rounded([two]) == rounded([three])
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: llm.read([STORY, OTHER], TEMPLATE), range(8)):
            assert rounded(found) == rounded([one, two])


def test_processors_change_no_read():
    llm = LLM(processors={"logit_bias": {"bias": {9: 50}}})
    assert rounded(llm.read(STORY, TEMPLATE)) == rounded(tiny_llm().read(STORY, TEMPLATE))


def test_a_failed_read_leaves_no_requests(monkeypatch):
    llm = tiny_llm()
    with monkeypatch.context() as patch:
        patch.setattr(Reads, "step", lambda self: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            llm.read(STORY, TEMPLATE)
    assert llm.read(STORY, TEMPLATE)
