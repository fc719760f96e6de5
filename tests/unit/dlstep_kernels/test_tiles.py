"""Tiles against the layout of the engine's own attention, and the room that buckets have."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep_kernels import lay_out, paged_attention
from dlstep_kernels.tiles import bucket_shape, exact_shape, tile_numbers, tiled_attention

from ...helpers.attention_checks import Problem, inputs_of, problems, spans_of


@settings(max_examples=60)
@given(problem=problems(head_dims=(8,), reach=60, rows=40, spans=5))
def test_the_twins_agree(problem):
    spans, _ = spans_of(problem)
    inputs = inputs_of(problem, "cpu")
    queries, keys, values = (part.float() for part in (inputs.queries, inputs.key_pages, inputs.value_pages))
    answer = tiled_attention(queries, keys, values, inputs.tiles, scale=0.3)
    layout = lay_out(spans, dtype=torch.float32, device=torch.device("cpu"))
    count = len(spans.until)
    truth = paged_attention(queries[:count], keys, values, layout, scale=0.3)
    torch.testing.assert_close(answer[:count], truth, atol=1e-5, rtol=1e-5)
    assert (answer[count:] == 0.0).all()


@given(problem=problems(head_dims=(8,), reach=60, rows=40, spans=5))
def test_every_row_is_in_one_tile(problem):
    tiles = inputs_of(problem, "cpu").tiles
    rows = [
        row
        for first, count in zip(tiles.first_rows.tolist(), tiles.counts.tolist(), strict=True)
        for row in range(first, first + count)
    ]
    assert sorted(rows) == list(range(tiles.shape.rows))
    assert int(tiles.counts.max()) * problem.group <= max(128, problem.group)


@given(
    counts=st.lists(st.integers(1, 37), min_size=1, max_size=6),
    group=st.sampled_from((1, 2, 4, 7, 40, 128)),
    window=st.integers(37, 50),
    more=st.integers(0, 3),
)
def test_a_bucket_holds_whatever_fits_it(counts, group, window, more):
    problem = Problem(tuple((0, count, count, 0, 4) for count in counts), 1, group, 8, 4, None, torch.float32, 0, False, 0)
    spans, _ = spans_of(problem)
    shape = bucket_shape(
        (len(counts) + more) * window, len(counts) + more, window, group=group, page_size=4, pages=10, windowed=False
    )
    assert tile_numbers(spans, shape).size == sum(shape.sizes)


@pytest.mark.parametrize("change", [{"rows": 15}, {"spans": 1}, {"pages": 2}])
def test_no_room_is_an_error(change):
    problem = Problem(((0, 8, 8, 0, 4), (4, 8, 12, 0, 4)), 1, 2, 8, 4, None, torch.float32, 0, False, 0)
    spans, _ = spans_of(problem)
    room = {"rows": 16, "spans": 2, "widest": 8, "pages": 3}
    tile_numbers(spans, bucket_shape(**room, group=2, page_size=4, windowed=False))
    with pytest.raises(ValueError, match=r"no room for 2 spans with 16 rows in \d tiles, 3 pages, no window"):
        tile_numbers(spans, bucket_shape(**room | change, group=2, page_size=4, windowed=False))


def test_an_exact_shape_has_no_more_room_than_needed():
    problem = Problem(((0, 40, 40, 0, 4), (4, 8, 12, 0, 4)), 1, 4, 8, 16, None, torch.float32, 0, False, 0)
    shape = exact_shape(spans_of(problem)[0], group=4)
    assert (shape.rows, shape.spans, shape.pages, shape.tiles, shape.tile_rows, shape.longest) == (48, 2, 3, 3, 32, 40)
