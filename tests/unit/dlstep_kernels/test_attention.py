"""Paged attention against a loop over pairs of positions, in double precision."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep.core import Grid
from dlstep_kernels import attention as attention_module, lay_out, paged_attention, store_kv, visible_range

from ...helpers.attention_checks import inputs_of, problems, spans_of


def sees(grid, end, window, query, key):
    near = window is None or key > grid.start(query) - window
    return key < end and grid.group(key) <= grid.group(query) and near


def oracle(problem, tables, inputs, scale):
    queries, keys, values = (part.double() for part in (inputs.queries, inputs.key_pages, inputs.value_pages))
    answer, row, page = torch.zeros_like(queries), 0, problem.page_size
    for (start, rows, end, origin, size), table in zip(problem.spans, tables.tolist(), strict=True):
        grid = Grid(origin, size)
        for number in range(rows):
            visible = [j for j in range(end) if sees(grid, end, problem.window, start + number, j) and number >= problem.blind]
            slots = [table[j // page] * page + j % page for j in visible]
            for head in range(problem.heads if visible else 0):
                scores = [scale * float(queries[row, head] @ keys[slot, head // problem.group]) for slot in slots]
                weights = [math.exp(score - max(scores)) for score in scores]
                for slot, weight in zip(slots, weights, strict=True):
                    answer[row, head] += weight / sum(weights) * values[slot, head // problem.group]
            row += 1
    return answer[:row]


@pytest.mark.parametrize("more_batch", [0, 20, 100, 10**9], ids=["many batches", "several", "few", "one batch"])
@settings(max_examples=20, deadline=None)
@given(problem=problems(head_dims=(8,), reach=14, rows=12, spans=5), alike=st.booleans())
def test_equals_a_loop_over_pairs(more_batch, problem, alike):
    problem = replace(problem, dtype=torch.float32)
    if alike:  # decode steps have as many rows in every span
        rows = problem.spans[0][1]
        problem = replace(problem, spans=tuple((start, rows, start + rows, *grid) for start, _, _, *grid in problem.spans))
    (spans, _), inputs = spans_of(problem), inputs_of(problem, "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "MORE_BATCH", more_batch)
        layout = lay_out(spans, dtype=torch.float32, device=torch.device("cpu"))
    queries = inputs.queries[: len(spans.until)]
    answer = paged_attention(queries, inputs.key_pages, inputs.value_pages, layout, scale=0.3)
    torch.testing.assert_close(answer.double(), oracle(problem, spans.block_tables, inputs, 0.3), atol=1e-5, rtol=1e-5)


@settings(deadline=None)
@given(data=st.data(), origin=st.integers(0, 12), size=st.integers(1, 8), window=st.none() | st.integers(0, 12))
def test_visible_range_is_the_rule(data, origin, size, window):
    grid = Grid(origin, size)
    end, position = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 39))
    arrays = (np.array([number], dtype=np.int64) for number in (position, origin, size, end))
    since, until = visible_range(*arrays, window=window)
    first = 0 if since is None else int(since[0])
    expected = [j for j in range(60) if sees(grid, end, window, position, j)]
    assert list(range(first, int(until[0]))) == expected


def test_a_row_of_slot_minus_one_is_not_stored():
    pages = torch.zeros(5, 1, 2), torch.zeros(5, 1, 2)
    rows = torch.ones(3, 1, 2)
    store_kv(rows, 2 * rows, *pages, torch.tensor([2, -1, 0]))
    for page, value in zip(pages, (1.0, 2.0), strict=True):
        assert page[:4, 0, 0].tolist() == [value, 0.0, value, 0.0]
