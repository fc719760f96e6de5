"""Random attention problems, and the checks that a kernel must pass on a device or in the interpreter."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from dlstep_kernels import Spans, visible_range
from dlstep_kernels.quantization import FP8, LARGEST
from dlstep_kernels.tiles import Tiles, TileShape, bucket_shape, exact_shape, tile_numbers, tiled_attention, tiles_over

# How far a kernel may be off. In 16 bits weights are rounded, by 2**-12 or 2**-9 of values up to 4, and the answer once more.
# In fp32 a score sums products of up to 20 in all, in another order on both sides: some 60 roundings of 2**-24 of values up
# to 4.
TOLERANCE = {torch.float32: 1.5e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass(frozen=True)
class Problem:
    """Spans as (start, rows, end, origin, size), and the sizes of everything. `blind` rows of each span see nothing."""

    spans: tuple[tuple[int, int, int, int, int], ...]
    kv_heads: int
    group: int
    head_dim: int
    page_size: int
    window: int | None
    dtype: torch.dtype
    blind: int
    padded: bool
    seed: int
    stored: torch.dtype | None = None  # dtype of the pages; None: that of the queries

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group


@st.composite
def problems(draw: st.DrawFn, *, head_dims: tuple[int, ...], reach: int, rows: int, spans: int = 3) -> Problem:
    """Problems of up to `spans` spans of up to `rows` rows, which begin below `fed_end`."""
    found = []
    for _ in range(draw(st.integers(1, spans))):
        start, count = draw(st.integers(0, reach)), draw(st.integers(1, rows))
        end = max(1, start + count - draw(st.sampled_from((0, 0, 1, count - 1))))
        found.append((start, count, end, draw(st.integers(0, reach)), draw(st.integers(1, 2 * rows))))
    return Problem(
        tuple(found),
        draw(st.sampled_from((1, 2, 3))),
        draw(st.sampled_from((1, 2, 4, 5, 7))),
        draw(st.sampled_from(head_dims)),
        draw(st.sampled_from((1, 3, 4, 8, 16, 64))),
        draw(st.none() | st.integers(0, reach)),
        draw(st.sampled_from(tuple(TOLERANCE))),
        draw(st.sampled_from((0, 0, 1, 3))),
        draw(st.booleans()),
        draw(st.integers(0, 2**31)),
        draw(st.sampled_from((None, FP8))),
    )


def spans_of(problem: Problem) -> tuple[Spans, int]:
    """The spans on distinct pages in random order, and how many pages there are."""
    _, counts, ends, origins, sizes = np.array(problem.spans, dtype=np.int64).T
    positions = np.concatenate([np.arange(start, start + rows) for start, rows, *_ in problem.spans])
    repeated = (np.repeat(column, counts) for column in (origins, sizes, ends))
    since, until = visible_range(positions, *repeated, window=problem.window)
    for first in np.cumsum(counts) - counts:
        until[first : first + problem.blind] = 0
    width = -(-int(ends.max()) // problem.page_size)
    order = np.random.default_rng(problem.seed).permutation(width * len(counts))
    tables = order.reshape(len(counts), width).astype(np.int64)
    return Spans(counts, ends, tables, until, since, problem.page_size), order.size


def shape_for(problem: Problem, spans: Spans) -> TileShape:
    """Room for just the spans, or for one more, with longer ones and more pages."""
    if not problem.padded:
        return exact_shape(spans, group=problem.group)
    batch, window, pages = len(spans.query_lens) + 1, int(spans.query_lens.max()) + 2, spans.block_tables.shape[1] + 1
    windowed = spans.since is not None
    return bucket_shape(
        batch * window, batch, window, group=problem.group, page_size=problem.page_size, pages=pages, windowed=windowed
    )


@dataclass(frozen=True)
class Inputs:
    """Arguments of an attention function; in the pages, whatever no span may read is not a number."""

    queries: Tensor
    key_pages: Tensor
    value_pages: Tensor
    tiles: Tiles


def inputs_of(problem: Problem, device: str) -> Inputs:
    """Inputs of the problem, queries with strides as a model's, pages as parts of larger ones."""
    spans, pages = spans_of(problem)
    shape = shape_for(problem, spans)
    generator = torch.Generator().manual_seed(problem.seed)
    slots = pages * problem.page_size + 1

    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).to(problem.dtype)

    held = random(2, slots, problem.kv_heads, problem.head_dim)
    read = torch.zeros(slots, dtype=torch.bool)
    for table, end in zip(spans.block_tables, spans.context_lens, strict=True):
        positions = np.arange(end)
        read[table[positions // problem.page_size] * problem.page_size + positions % problem.page_size] = True
    held[:, ~read] = float("nan")
    queries = random(problem.heads, shape.rows, problem.head_dim).to(device).transpose(0, 1)
    key_pages, value_pages = held.to(device, problem.stored or problem.dtype)
    tiles = tiles_over(torch.from_numpy(tile_numbers(spans, shape)).to(device), shape)
    return Inputs(queries, key_pages, value_pages, tiles)


def expected(inputs: Inputs, scale: float) -> Tensor:
    """The twin's answer to the same numbers in fp32."""
    queries, keys, values = (part.float() for part in (inputs.queries, inputs.key_pages, inputs.value_pages))
    return tiled_attention(queries, keys, values, inputs.tiles, scale=scale)


def assert_near(answer: Tensor, truth: Tensor) -> None:
    """Equal within the rounding of the answer's dtype and of the weights, which are rounded to it."""
    limit = TOLERANCE[answer.dtype]
    torch.testing.assert_close(answer.float(), truth, atol=limit, rtol=limit)


def check_store(
    store: Callable[..., object],
    twin: Callable[..., object],
    slots: Tensor,
    room: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    seed: int = 0,
    stored: torch.dtype | None = None,
) -> None:
    """Check that pages of `room` slots, and the page after them, hold what the twin stores; rows are laid out as in a model.

    Heads come before rows, keys are contiguous, values part of a larger tensor. Pages have dtype
    `stored` (None: that of the rows); numbers beyond its range are clamped.
    """
    generator, count = torch.Generator().manual_seed(seed), len(slots)

    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).to(slots.device, dtype)

    keys = random(kv_heads, count, head_dim).transpose(0, 1)
    values = random(count, 3 * kv_heads, head_dim)[:, kv_heads : 2 * kv_heads]
    if count:
        keys[0, 0, 0], values[-1, 0, 0] = 2 * LARGEST, -2 * LARGEST
    pages = random(2, room + 1, kv_heads, head_dim).to(stored or dtype)
    before, reference = pages[:, -1].clone(), pages.clone()
    store(keys, values, *pages, slots)
    twin(keys, values, *reference, slots)
    pages, reference, before = pages.float(), reference.float(), before.float()
    assert torch.equal(pages[:, :-1], reference[:, :-1]) and torch.equal(pages[:, -1], before)
    assert stored is None or float(pages.abs().max()) <= LARGEST
