"""Plans as tensors."""

from dataclasses import replace

import pytest
import torch

from dlstep.core import (
    Admission,
    Config,
    DlstepError,
    Grant,
    Grid,
    Plan,
    Rows,
    SamplingParams,
    Span,
    Spec,
    Wanted,
    Who,
)
from dlstep.driver import PageTables
from dlstep.driver.lowering import LoweringTarget, gather, lower as lower_gathered
from dlstep.driver.tables import MaskTable

from ...helpers.spans import changed

CPU = torch.device("cpu")
TARGET = LoweringTarget(4, 0, views=((None, 2),), device=CPU, dtype=torch.float32, masks=MaskTable(64, CPU))
GRID = Grid(0, 4)


def span(number, start, count, sampled=(), **others):
    tokens = tuple(range(100 * number + start, 100 * number + start + count))
    params = others.pop("params", SamplingParams())
    rows, wanted = Rows(start, tokens, start + count, GRID), Wanted(sampled, (0,) * len(sampled))
    return changed(Span(Who(number, number, params, -1), rows, wanted), **others)


def tables_of(*tables):
    page_tables = PageTables(Config(Spec(1, (0,), 64), page_size=4, max_model_len=4, max_num_reqs=4))
    admissions = tuple(Admission(number, pages[:1]) for number, pages in enumerate(tables))
    grants = tuple(Grant(number, pages[1:]) for number, pages in enumerate(tables))
    page_tables.apply(Plan(0, 0, (), admissions=admissions, grants=grants))
    return page_tables


def plan_of(*spans):
    return Plan(0, 0, spans)


def lower(plan, tables, target):
    return lower_gathered(gather(plan, tables, target), target)


def test_rows_are_packed_and_slots_follow_the_tables():
    tables = tables_of((5, 2, 9), (7, 0))
    batch = lower(plan_of(span(0, 3, 6, (4, 8), query_only=1), span(1, 0, 5, (2,))), tables, TARGET)
    assert batch.tokens.tolist() == [[3, 4, 5, 6, 7, 8, 100, 101, 102, 103, 104]]
    assert batch.positions.tolist() == [[3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4]]
    assert batch.slot_mapping.tolist() == [-1, 8, 9, 10, 11, 36, 28, 29, 30, 31, 0]
    assert batch.sampled_rows.tolist() == [1, 5, 8]


def test_a_shift_head_reads_the_row_before():
    tables = tables_of((5, 2))
    shifted = replace(TARGET, head_shift=1)
    batch = lower(plan_of(span(0, 3, 4, (4, 6))), tables, shifted)
    assert batch.sampled_rows.tolist() == [0, 2]


def test_tables_grow_and_rows_are_used_again():
    tables = tables_of((5, 2, 9, 1, 4, 6), (7,))
    assert tables.pages[tables.rows[0]][:6].tolist() == [5, 2, 9, 1, 4, 6]
    row = tables.rows[0]
    tables.apply(Plan(1, 1, (), releases=(0, 77), admissions=(Admission(8, ()),)))
    assert tables.rows == {1: 1, 8: row}
    with pytest.raises(DlstepError, match="admits request 1, which is live"):
        tables.apply(Plan(2, 1, (), admissions=(Admission(1, ()),)))


FILTERS = {"temperature": 0.5, "top_k": 3, "top_p": 0.75, "min_p": 0.25}
NAMES = {"temperature": "temperatures", **{name: name for name in ("top_k", "top_p", "min_p")}}


@pytest.mark.parametrize("mate", [None, SamplingParams(), SamplingParams(temperature=2.0, top_k=7, top_p=0.5, min_p=0.125)])
@pytest.mark.parametrize("name", FILTERS)
def test_each_setting_of_a_request_reaches_its_rows_whoever_else_is_in_the_batch(name, mate):
    own = span(0, 0, 4, (1, 2), params=SamplingParams(**{name: FILTERS[name]}))
    mates = () if mate is None else (span(1, 0, 4, (3,), params=mate),)
    found = lower(plan_of(own, *mates), tables_of((0, 1), (2, 3)), TARGET).settings
    neutral = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for each in FILTERS:
        column = getattr(found, NAMES[each])
        assert (column is None) == (each != name and (mate is None or getattr(mate, each) == neutral[each])), each
        rows = [neutral[each]] * 3 if column is None else column.tolist()
        assert rows[:2] == [FILTERS[name] if each == name else neutral[each]] * 2, each
        if mate is not None:
            assert rows[2:] == [getattr(mate, each)], each
    assert (found.noise is not None) == (found.temperatures is not None)
    if mate is not None and found.noise is not None:
        assert (found.noise.seeds.tolist(), found.noise.positions.tolist()) == ([-1] * 3, [1, 2, 3])


def test_a_penalty_is_for_the_token_before_but_not_across_groups():
    """Groups of four begin at 0, 4 and 8; position 3 begins the span, so that nothing is fed before it."""
    own = span(0, 3, 7, (3, 4, 5, 7, 8, 9), penalty=1.5, params=SamplingParams(temperature=0.5))
    mate = span(1, 0, 4, (1,), params=SamplingParams(temperature=2.0))
    settings = lower(plan_of(own, mate), tables_of((0, 1, 2), (3,)), TARGET).settings
    assert settings.penalty.ids.tolist()[:6] == [-1, -1, 4, 6, -1, 8]
    assert settings.penalty.amounts.tolist() == [1.5] * 6 + [0.0]
    assert settings.temperatures.tolist() == [0.0] * 6 + [2.0]  # what is penalised is greedy
