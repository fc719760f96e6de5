"""Paged attention against a loop over pairs of positions, in double precision."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep.core import Grid
from dlstep_kernels import Spans, attention as attention_module, lay_out, paged_attention, store_kv, visible_range

HEAD_DIM = 8


@dataclass(frozen=True)
class Case:
    """Spans as (start, rows, end, origin, size), and the sizes of everything."""

    spans: tuple[tuple[int, int, int, int, int], ...]
    kv_heads: int
    group: int
    page_size: int
    window: int | None
    seed: int


@st.composite
def cases(draw) -> Case:
    spans = []
    same = draw(st.none() | st.integers(1, 12))  # decode steps have as many rows in every span
    for _ in range(draw(st.integers(1, 5))):
        start, rows = draw(st.integers(0, 14)), draw(st.integers(1, 12)) if same is None else same
        end = start + rows - draw(st.integers(0, 1)) * draw(st.integers(0, rows - 1))
        spans.append((start, rows, max(1, end), draw(st.integers(0, 10)), draw(st.integers(1, 9))))
    return Case(
        tuple(spans),
        draw(st.sampled_from((1, 2, 3))),
        draw(st.sampled_from((1, 2, 7))),
        draw(st.integers(1, 6)),
        draw(st.none() | st.integers(0, 12)),
        draw(st.integers(0, 2**31)),
    )


def pages_of(case: Case) -> tuple[np.ndarray, int]:
    """A table of distinct pages in random order, longer than any span needs; and the number of pages."""
    width = max(-(-end // case.page_size) for _, _, end, _, _ in case.spans) + 1
    count = width * len(case.spans)
    order = np.random.default_rng(case.seed).permutation(count)
    return order.reshape(len(case.spans), width).astype(np.int64), count


def layout_of(case: Case, tables: np.ndarray):
    _, counts, ends, origins, sizes = np.array(case.spans, dtype=np.int64).T
    positions = np.concatenate([np.arange(start, start + rows) for start, rows, *_ in case.spans])
    repeated = (np.repeat(column, counts) for column in (origins, sizes, ends))
    since, until = visible_range(positions, *repeated, window=case.window)
    spans = Spans(counts, ends, tables, until, since, case.page_size)
    return lay_out(spans, dtype=torch.float32, device=torch.device("cpu"))


def sees(grid: Grid, end: int, window: int | None, query: int, key: int) -> bool:
    near = window is None or key > grid.start(query) - window
    return key < end and grid.group(key) <= grid.group(query) and near


def oracle(case: Case, queries, keys, values, scale: float) -> torch.Tensor:
    """`keys` and `values` are one tensor [end, kv_heads, head_dim] for each span."""
    answer = torch.zeros(queries.shape, dtype=torch.float64)
    row = 0
    for (start, rows, end, origin, size), key, value in zip(case.spans, keys, values, strict=True):
        grid = Grid(origin, size)
        for position in range(start, start + rows):
            visible = [j for j in range(end) if sees(grid, end, case.window, position, j)]
            for head in range(queries.shape[1] if visible else 0):
                scores = [scale * float(queries[row, head].double() @ key[j, head // case.group].double()) for j in visible]
                weights = [math.exp(score - max(scores)) for score in scores]
                for j, weight in zip(visible, weights, strict=True):
                    answer[row, head] += weight / sum(weights) * value[j, head // case.group].double()
            row += 1
    return answer


@pytest.mark.parametrize("more_batch", [0, 20, 100, 10**9], ids=["many batches", "several", "few", "one batch"])
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_equals_a_loop_over_pairs(more_batch, case):
    generator = torch.Generator().manual_seed(case.seed)
    tables, count = pages_of(case)
    heads = case.kv_heads * case.group
    shape = (count * case.page_size + 1, case.kv_heads, HEAD_DIM)
    # Whatever no span may read is not a number.
    key_pages, value_pages = torch.full(shape, math.nan), torch.full(shape, math.nan)
    keys, values = [], []
    for (_, _, end, _, _), table in zip(case.spans, tables, strict=True):
        keys.append(torch.randn(end, case.kv_heads, HEAD_DIM, generator=generator))
        values.append(torch.randn(end, case.kv_heads, HEAD_DIM, generator=generator))
        slots = [int(table[j // case.page_size]) * case.page_size + j % case.page_size for j in range(end)]
        store_kv(keys[-1], values[-1], key_pages, value_pages, torch.tensor(slots))
    rows = sum(span[1] for span in case.spans)
    queries = torch.randn(rows, heads, HEAD_DIM, generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "MORE_BATCH", more_batch)
        layout = layout_of(case, tables)
    answer = paged_attention(queries, key_pages, value_pages, layout, scale=0.3)
    torch.testing.assert_close(answer.double(), oracle(case, queries, keys, values, 0.3), atol=1e-5, rtol=1e-5)


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
