"""Sizes that steps are padded to."""

from hypothesis import example, given, settings, strategies as st

from dlstep.driver.buckets import NARROW, Kind, rounded, row_sizes, sized
from dlstep_kernels import SamplerConfig
from dlstep_kernels.tiles import TILE_HEIGHT


@example(4097)
@given(st.integers(1, 10_000))
def test_little_is_too_much(count):
    assert (
        count
        <= rounded(count)
        <= max(16, 2 * count if count <= 128 else count * 1.25 if count <= 320 else count + max(63, count / 16))
    )
    assert rounded(rounded(count)) == rounded(count)


@given(st.integers(1, 5_000), st.data())
def test_row_sizes_are_those_that_counts_are_rounded_to(most, data):
    sizes = row_sizes(most)
    assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[0] == rounded(most)
    assert rounded(data.draw(st.integers(1, most))) in sizes
    assert all(rounded(size) == size for size in sizes)


@settings(max_examples=100)
@given(
    widest=st.sampled_from([NARROW, TILE_HEIGHT]),
    heights=st.sampled_from([1, 3, 9, 40]).flatmap(lambda most: st.lists(st.integers(1, most), min_size=1, max_size=80)),
    longest=st.integers(1, 5_000),
    page_size=st.sampled_from([4, 16, 64]),
    canvas=st.sampled_from([0, 0, 8]),
)
def test_a_bucket_has_room_for_all_that_it_is_chosen_for(widest, heights, longest, page_size, canvas):
    heights = [canvas] * len(heights) if canvas else heights
    width = 5_000 // page_size + 1
    kind = Kind(widest, scored=0, soft=0, names=(), sampler=SamplerConfig())
    bucket = sized(kind, sum(heights), len(heights), longest, canvas, page_size, width)
    assert bucket.rows >= sum(heights)
    assert bucket.spans >= len(heights)
    assert bucket.pages * page_size >= longest
    assert not canvas or bucket.rows == bucket.spans * canvas
