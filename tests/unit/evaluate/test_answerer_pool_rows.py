"""A row is a function of its request: neither order, nor batch mates, nor memory change it; and the counts are true."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dlstep import LLM, SamplingParams
from dlstep.core import Samples
from dlstep.evaluate.answerer_pool import AnsweredItem, Answering
from dlstep.evaluate.items import Item, items_of, read_documents
from dlstep.evaluate.metrics import ForwardSums
from dlstep.evaluate.options import EvalOptions, grid_of

OPTIONS = EvalOptions(dataset_limit=12, temperature=0.5, grid=grid_of({"accept_threshold": [0.5, 0.9]}))
ITEMS = items_of(OPTIONS, read_documents(OPTIONS))
ROOMY = LLM("tiny-bd", max_num_reqs=32)


def answered(llm: LLM, order: list[int], items: list[Item] = ITEMS) -> tuple[dict[int, AnsweredItem], ForwardSums]:
    """The answers to items that are added in this order, and the work."""
    answering = Answering(llm.engine)
    for place in order:
        answering.add(place, items[place])
    found: dict[int, AnsweredItem] = {}
    work = ForwardSums()
    while answering.live:
        ended, worked = answering.step()
        found |= {each.place: each for each in ended}
        work += worked
    return found, work


ALONE = {place: answered(ROOMY, [place])[0][place] for place in range(len(ITEMS))}


@settings(max_examples=6)
@given(order=st.permutations(range(len(ITEMS))))
def test_order_and_batch_change_no_row(order: list[int]) -> None:
    found, _ = answered(ROOMY, order)
    assert {place: dict(each.row) for place, each in found.items()} == {place: dict(ALONE[place].row) for place in order}


@pytest.mark.parametrize("limits", [{"max_num_reqs": 3}, {"max_num_batched_tokens": 64}, {"num_pages": 24, "page_size": 8}])
def test_memory_changes_no_row(limits: dict[str, Any]) -> None:
    llm = LLM("tiny-bd", **({"max_model_len": 176} | limits))
    found, work = answered(llm, list(range(len(ITEMS))))
    for place, each in found.items():
        assert json.dumps(each.row) == json.dumps(ALONE[place].row)
    if "num_pages" in limits:
        assert work.preemptions and sum(each.beside["wasted"] for each in found.values()), "the case is what it says"


def test_rows_are_those_of_generate() -> None:
    found, _ = answered(ROOMY, list(range(len(ITEMS))))
    for threshold in (0.5, 0.9):
        own = [place for place, item in enumerate(ITEMS) if item.options == (("accept_threshold", threshold),)]
        params = SamplingParams(max_tokens=64, temperature=0.5, strategy_options={"accept_threshold": threshold})
        outputs = LLM("tiny-bd").generate([str(ITEMS[place].prompt) for place in own], params, progress=False)
        for place, output in zip(own, outputs, strict=True):
            row, beside = found[place].row, found[place].beside
            assert (row["answer"], tuple(row["tokens"]), row["steps"]) == (output.text, output.token_ids, output.steps)
            assert row["finish"] == output.finish_reason
            assert beside["forwards"] >= row["steps"] and len(beside["probabilities"]) == len(row["tokens"])


def test_equal_documents_have_seeds_of_their_own() -> None:
    twice = [replace(ITEMS[0], index=index) for index in (0, 1)]
    found, _ = answered(ROOMY, [0, 1], twice)
    assert found[0].row["seed"] != found[1].row["seed"]


def test_equal_prompts_are_numbered_for_each_set_of_options() -> None:
    same = [replace(ITEMS[0].document, number=number) for number in range(3)]
    assert [item.index for item in items_of(OPTIONS, {"shells": [*same, ITEMS[1].document]})] == [0, 1, 2, 0] * 2


def test_work_is_the_sum_of_what_plans_say() -> None:
    llm = LLM("tiny-bd", max_num_reqs=5)
    events: list[Samples] = []
    answering = Answering(llm.engine)
    count = answering._count

    def counted(event: object) -> None:
        count(event)  # pyright: ignore[reportArgumentType]
        events.extend([event] if isinstance(event, Samples) else [])

    answering._decode._record = counted
    for place, item in enumerate(ITEMS):
        answering.add(place, item)
    found: list[AnsweredItem] = []
    work = ForwardSums()
    while answering.live:
        ended, worked = answering.step()
        found += ended
        work += worked
    plans = [event.plan for event in events]
    assert work.forwards == len(plans) and work.spans == sum(len(plan.spans) for plan in plans)
    assert work.sampling == sum(any(span.sampled for span in plan.spans) for plan in plans)
    assert work.rows == sum(len(span.tokens) for plan in plans for span in plan.spans)
    assert work.rows == sum(each.beside["computed"] for each in found)
    assert work.spans == sum(each.beside["forwards"] for each in found)
    assert 0 < work.decode_seconds <= work.seconds and work.padding == 0


def test_decided_at_is_the_step_that_gave_each_token() -> None:
    """Beside a session that is looked at after every forward."""
    for strategy, model in (("multi_bd", "tiny-bd"), ("dmax", "tiny-edit")):
        llm = LLM(model, decoding_strategy=strategy)
        plain = [replace(item, params=replace(item.params, temperature=0.0, strategy_options=())) for item in ITEMS[:4]]
        found, _ = answered(llm, [0, 1, 2, 3], plain)
        for place, item in enumerate(plain):
            session = llm.session()
            session.submit(str(item.prompt), item.params)
            tokens: list[list[int | None]] = []
            while not session.state.done:
                session.step()
                sequence = session.state.find(0)
                assert sequence is not None
                start, shown = len(sequence.request.prompt), {}
                for block in (*sequence.past, *sequence.window):
                    masked = set(getattr(block, "masked", ()))
                    shown |= {p - start: t for p, t in enumerate(block.tokens, block.start) if p not in masked}
                tokens.append([shown.get(offset) for offset in range(64)])
            answer = found[place].row["tokens"]
            for offset, token in enumerate(answer):
                step = found[place].beside["decided_at"][offset]
                column = [line[offset] for line in tokens[: found[place].row["steps"]]]
                assert column[step - 1 :] == [token] * len(column[step - 1 :])
                assert step == 1 or column[step - 2] != token
