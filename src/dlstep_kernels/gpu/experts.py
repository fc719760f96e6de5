"""Mixture of experts: (row, choice) pairs are sorted into tiles of one expert, read once per tile.

Rounds where the twin does, and once more: what a pair adds is stored in the dtype of the hidden
states, because with many rows this traffic is a tenth of the time, and fp32 would double it.
Results do not depend on the order in which programs run.
"""

from dataclasses import dataclass

import torch
import triton.language as tl
from jaxtyping import Float, Float32, Int32, Int64
from torch import Tensor
from triton.language import constexpr
from triton.tools.tensor_descriptor import TensorDescriptor

from ..experts import Activation
from .launch import ALIGNMENT, Parameters, aligned, architecture, compiled_with, divided_up, kernel, parameters, power_of_two
from .quantization import quantize_rows

MAX_PAIRS = 128  # pairs per expert; launch parameters do not change beyond this
# Tiles of this height are halved if that holds all their pairs. Smaller products would use another
# instruction, whose sums may differ in the last bit.
HALVED = constexpr(128)


@kernel(do_not_specialize=("pairs",))
def _rank_pairs(chosen, counts, ranks, pairs, experts, BLOCK: constexpr):
    """Count the pairs of each expert, and number the pairs within their expert.

    The numbering depends on timing, but the place of a pair in a tile does not affect its product.
    """
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(chosen + pair, mask=pair < pairs, other=-1)
    valid = (expert >= 0) & (expert < experts)
    rank = tl.atomic_add(counts + tl.where(valid, expert, 0), 1, mask=valid, sem="relaxed")
    tl.store(ranks + pair, rank, mask=valid)


@kernel(do_not_specialize=("pairs", "limit"))
def _place_pairs(
    chosen, counts, ranks, order, tiles, pairs, experts, limit,
    ROWS: constexpr, BLOCK: constexpr, TILES: constexpr, EXPERTS: constexpr,
):  # fmt: skip
    """Sort pairs by expert; store each tile's expert (-1: none), first place and end.

    Every program sums all counts, since they are few.
    """
    one = tl.arange(0, EXPERTS)
    count = tl.load(counts + one, mask=one < experts, other=0)
    start = tl.cumsum(count, 0) - count
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(chosen + pair, mask=pair < pairs, other=-1)
    valid = (expert >= 0) & (expert < experts)
    rank = tl.load(ranks + pair, mask=valid, other=0)
    tl.store(order + tl.gather(start, tl.where(valid, expert, 0).to(tl.int32), 0) + rank, pair, mask=valid)
    tile = tl.program_id(0) * TILES + tl.arange(0, TILES)
    if tl.program_id(0) * TILES < limit:
        laid = tl.cdiv(count, ROWS)
        stops = tl.cumsum(laid, 0)
        owner = tl.sum((stops[None, :] <= tile[:, None]).to(tl.int32), 1)
        mine = tl.minimum(owner, EXPERTS - 1)
        first = tl.gather(start, mine, 0)
        stop = first + tl.gather(count, mine, 0)
        first += (tile - tl.gather(stops - laid, mine, 0)) * ROWS
        tl.store(tiles + tile, tl.where(owner < experts, owner, -1), mask=tile < limit)
        tl.store(tiles + limit + tile, first, mask=tile < limit)
        tl.store(tiles + 2 * limit + tile, stop, mask=tile < limit)


@kernel
def _gathered(matrix, row, inside, first, stride, depth, DEPTH: constexpr, EVEN: constexpr):
    """Load a range of the columns of these rows."""
    place = first + tl.arange(0, DEPTH)
    at = matrix + row.to(tl.int64)[:, None] * stride + place[None, :]
    if EVEN:
        return tl.load(at, mask=inside[:, None], other=0.0)
    return tl.load(at, mask=inside[:, None] & (place < depth)[None, :], other=0.0)


@kernel
def _turned(matrix, start, first, height, depth,
            COLUMNS: constexpr, DEPTH: constexpr, EVEN: constexpr, BULK: constexpr):  # fmt: skip
    """Load columns of the rows from `start` on, transposed; zeros past the end of a row."""
    if BULK:
        numbers = matrix.load([start, first])
    else:
        place = first + tl.arange(0, DEPTH)
        # Rows past the end repeat the last one: their products are never stored.
        row = tl.minimum(start + tl.arange(0, COLUMNS), height - 1)
        at = matrix + row.to(tl.int64)[:, None] * depth + place[None, :]
        numbers = tl.load(at) if EVEN else tl.load(at, mask=(place < depth)[None, :], other=0.0)
    return numbers.T


@kernel
def _gate_tile(
    hidden, hidden_scales, weight, weight_scales, inner, order, begin, stop, top, start, hidden_stride, choices, height, depth,
    width, ROWS: constexpr, COLUMNS: constexpr, DEPTH: constexpr, EVEN: constexpr, BULK: constexpr,
    TANH: constexpr,
):  # fmt: skip
    """Store activation(gate) * up of the pairs from `begin` on; weights start at row `top`."""
    place = begin + tl.arange(0, ROWS)
    inside = place < stop
    pair = tl.load(order + place, mask=inside, other=0)
    row = pair // choices
    gate, up = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, depth, DEPTH):
        some = _gathered(hidden, row, inside, first, hidden_stride, depth, DEPTH, EVEN)
        left = _turned(weight, top, first, height, depth, COLUMNS, DEPTH, EVEN, BULK)
        right = _turned(weight, top + width, first, height, depth, COLUMNS, DEPTH, EVEN, BULK)
        gate = tl.dot(some, left, gate, input_precision="ieee")
        up = tl.dot(some, right, up, input_precision="ieee")
    column = start + tl.arange(0, COLUMNS)
    if weight_scales is not None:
        own = tl.load(hidden_scales + row, mask=inside, other=0.0)[:, None]
        at = weight_scales + top + tl.arange(0, COLUMNS)
        gate *= own * tl.load(at, mask=column < width, other=0.0)[None, :]
        up *= own * tl.load(at + width, mask=column < width, other=0.0)[None, :]
    bend = gate
    if TANH:
        # Uses 1 + tanh(x) = 2 * sigmoid(2x).
        bend = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    values = gate / (1.0 + tl.exp(-bend)) * up
    at = inner + pair.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(at, values.to(inner.dtype.element_ty), mask=inside[:, None] & (column < width)[None, :])


@kernel(do_not_specialize=("limit",))
def _multiply_gated(
    hidden, hidden_scales, weight, weight_scales, inner, order, tiles, hidden_stride, choices, limit, height, depth, width,
    ROWS: constexpr, COLUMNS: constexpr, DEPTH: constexpr, EVEN: constexpr, BULK: constexpr,
    TANH: constexpr,
):  # fmt: skip
    # Neighbouring programs belong to tiles of one expert and read the same weights.
    across = tl.cdiv(width, COLUMNS)
    tile, start = tl.program_id(0) // across, tl.program_id(0) % across * COLUMNS
    expert = tl.load(tiles + tile)
    if expert < 0:
        return
    begin, stop = tl.load(tiles + limit + tile), tl.load(tiles + 2 * limit + tile)
    top = expert * 2 * width + start
    if ROWS < HALVED or stop - begin > ROWS // 2:
        _gate_tile(hidden, hidden_scales, weight, weight_scales, inner, order, begin, stop, top, start, hidden_stride,
                   choices, height, depth, width, ROWS, COLUMNS, DEPTH, EVEN, BULK, TANH)  # fmt: skip
    else:
        _gate_tile(hidden, hidden_scales, weight, weight_scales, inner, order, begin, stop, top, start, hidden_stride,
                   choices, height, depth, width, ROWS // 2, COLUMNS, DEPTH, EVEN, BULK, TANH)  # fmt: skip


@kernel
def _lower_tile(
    inner, inner_scales, weight, weight_scales, shares, parts, order, begin, stop, top, start, height, depth, width,
    ROWS: constexpr, COLUMNS: constexpr, DEPTH: constexpr, EVEN: constexpr, BULK: constexpr,
):  # fmt: skip
    """Store in `parts` the contribution of each pair from `begin` on; weights start at `top`."""
    place = begin + tl.arange(0, ROWS)
    inside = place < stop
    pair = tl.load(order + place, mask=inside, other=0)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, depth, DEPTH):
        some = _gathered(inner, pair, inside, first, depth, depth, DEPTH, EVEN)
        others = _turned(weight, top, first, height, depth, COLUMNS, DEPTH, EVEN, BULK)
        sums = tl.dot(some, others, sums, input_precision="ieee")
    column = start + tl.arange(0, COLUMNS)
    if weight_scales is not None:
        own = tl.load(inner_scales + pair, mask=inside, other=0.0)[:, None]
        sums *= own * tl.load(weight_scales + top + tl.arange(0, COLUMNS), mask=column < width, other=0.0)[None, :]
    sums *= tl.load(shares + pair, mask=inside, other=0.0).to(tl.float32)[:, None]
    at = parts + pair.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(at, sums.to(parts.dtype.element_ty), mask=inside[:, None] & (column < width)[None, :])


@kernel(do_not_specialize=("limit",))
def _multiply_down(
    inner, inner_scales, weight, weight_scales, shares, parts, order, tiles, limit, height, depth, width,
    ROWS: constexpr, COLUMNS: constexpr, DEPTH: constexpr, EVEN: constexpr, BULK: constexpr,
):  # fmt: skip
    across = tl.cdiv(width, COLUMNS)
    tile, start = tl.program_id(0) // across, tl.program_id(0) % across * COLUMNS
    expert = tl.load(tiles + tile)
    if expert < 0:
        return
    begin, stop = tl.load(tiles + limit + tile), tl.load(tiles + 2 * limit + tile)
    top = expert * width + start
    if ROWS < HALVED or stop - begin > ROWS // 2:
        _lower_tile(inner, inner_scales, weight, weight_scales, shares, parts, order, begin, stop, top, start, height,
                    depth, width, ROWS, COLUMNS, DEPTH, EVEN, BULK)  # fmt: skip
    else:
        _lower_tile(inner, inner_scales, weight, weight_scales, shares, parts, order, begin, stop, top, start, height,
                    depth, width, ROWS // 2, COLUMNS, DEPTH, EVEN, BULK)  # fmt: skip


@kernel
def _add_choices(parts, chosen, answer, experts, width, COUNT: constexpr, BLOCK: constexpr):
    """Sum a row's parts in the order of its choices, skipping invalid choices."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for one in tl.static_range(COUNT):
        pair = row * COUNT + one
        expert = tl.load(chosen + pair)
        valid = (expert >= 0) & (expert < experts)
        total += tl.load(parts + pair * width + column, mask=(column < width) & valid, other=0.0).to(tl.float32)
    tl.store(answer + row * width + column, total.to(answer.dtype.element_ty), mask=column < width)


@dataclass(frozen=True, slots=True)
class _Laid:
    """Pairs sorted by expert, and tiles of `height` rows: expert, first place, end."""

    order: Int32[Tensor, " pairs"]
    tiles: Int32[Tensor, "3 tiles"]
    height: int


def _names(down: Float[Tensor, "experts hidden inner"], pairs: int) -> tuple[str, ...]:
    """Return keys of launch parameters: with pairs per expert (a power of 2), then without.

    Parameters for 2-byte numbers assume that rows of weights start at multiples of 16 bytes.
    """
    here, (experts, *sizes), size = architecture(down.device), down.shape, f"{down.itemsize}b"
    if any(each * down.itemsize % ALIGNMENT for each in sizes):
        return (here,)
    each = min(max(1, pairs // experts), MAX_PAIRS)
    return f"{here}/{size}/p{power_of_two(each + 1) // 2}", f"{here}/{size}", here, size


def _lay(chosen: Int64[Tensor, "n k"], experts: int, names: tuple[str, ...]) -> _Laid:
    """Lay tiles over all pairs. Their maximum number is known without reading the choices."""
    pairs, ranked, placed = chosen.numel(), parameters("rank_pairs", *names), parameters("place_pairs", *names)
    height = placed["rows"]
    limit = (pairs + min(pairs, experts) * (height - 1)) // height
    counts = torch.zeros(experts, dtype=torch.int32, device=chosen.device)
    ranks, order = torch.empty((2, pairs), dtype=torch.int32, device=chosen.device)
    tiles = torch.empty((3, limit), dtype=torch.int32, device=chosen.device)
    _rank_pairs[(divided_up(pairs, ranked["block"]),)](
        chosen, counts, ranks, pairs, experts, BLOCK=ranked["block"], **compiled_with(ranked)
    )
    _place_pairs[(max(divided_up(pairs, placed["block"]), divided_up(limit, placed["tiles"])),)](
        chosen, counts, ranks, order, tiles, pairs, experts, limit,
        ROWS=height, BLOCK=placed["block"], TILES=placed["tiles"], EXPERTS=power_of_two(experts), **compiled_with(placed),
    )  # fmt: skip
    return _Laid(order, tiles, height)


def _read_as(
    weight: Float[Tensor, "experts height depth"], launch: Parameters
) -> tuple[Tensor | TensorDescriptor, dict[str, int | bool]]:
    """Return all experts' weights as a matrix or descriptor, and kernel options to read it."""
    matrix, depth = weight.flatten(0, 1), weight.shape[2]
    bulk = bool(launch["bulk"]) and aligned(matrix)
    how = {"COLUMNS": launch["columns"], "DEPTH": launch["depth"], "EVEN": depth % launch["depth"] == 0, "BULK": bulk}
    return TensorDescriptor.from_tensor(matrix, [launch["columns"], launch["depth"]]) if bulk else matrix, how


def _gate(
    hidden: Float[Tensor, "n hidden"], gate_up: Float[Tensor, "experts twice_inner hidden"],
    scales: Float32[Tensor, "experts twice_inner"] | None, laid: _Laid, count: int, names: tuple[str, ...],
    activation: Activation,
) -> Float[Tensor, "pairs inner"]:  # fmt: skip
    """Return activation(gate) * up of each pair; rows of invalid choices are undefined."""
    launch = parameters("multiply_gated", *names)
    matrix, how = _read_as(gate_up, launch)
    (experts, height, depth), limit = gate_up.shape, laid.tiles.shape[1]
    inner = hidden.new_empty((len(laid.order), height // 2))
    rows, row_scales = (hidden, None) if scales is None else quantize_rows(hidden)
    _multiply_gated[(limit * divided_up(height // 2, launch["columns"]),)](
        rows, row_scales, matrix, scales, inner, laid.order, laid.tiles, rows.stride(0), count, limit, experts * height, depth,
        height // 2, ROWS=laid.height, TANH=activation == "gelu_tanh", **how, **compiled_with(launch),
    )  # fmt: skip
    return inner


def _lower(
    inner: Float[Tensor, "pairs inner"], down: Float[Tensor, "experts hidden inner"],
    scales: Float32[Tensor, "experts hidden"] | None, shares: Float[Tensor, "n k"], laid: _Laid, names: tuple[str, ...],
) -> Float[Tensor, "pairs hidden"]:  # fmt: skip
    """Return what each pair adds to its row; rows of invalid choices are undefined."""
    launch = parameters("multiply_down", *names)
    matrix, how = _read_as(down, launch)
    (experts, width, depth), limit = down.shape, laid.tiles.shape[1]
    parts = inner.new_empty((len(inner), width))
    rows, row_scales = (inner, None) if scales is None else quantize_rows(inner)
    _multiply_down[(limit * divided_up(width, launch["columns"]),)](
        rows, row_scales, matrix, scales, shares, parts, laid.order, laid.tiles, limit, experts * width, depth, width,
        ROWS=laid.height, **how, **compiled_with(launch),
    )  # fmt: skip
    return parts


def mix_experts(
    hidden: Float[Tensor, "n hidden"],
    chosen: Int64[Tensor, "n k"],
    weights: Float[Tensor, "n k"],
    gate_up: Float[Tensor, "experts twice_inner hidden"],
    down: Float[Tensor, "experts hidden inner"],
    gate_up_scales: Float32[Tensor, "experts twice_inner"] | None = None,
    down_scales: Float32[Tensor, "experts hidden"] | None = None,
    *,
    activation: Activation,
) -> Float[Tensor, "n hidden"]:
    """Return the twin's result up to rounding; without scales, all arguments must have the same dtype."""
    if not chosen.numel():
        return torch.zeros_like(hidden)
    hidden = hidden if hidden.stride(1) == 1 else hidden.contiguous()
    chosen, experts = chosen.contiguous(), len(down)
    names = _names(down, chosen.numel())
    laid = _lay(chosen, experts, names)
    inner = _gate(hidden, gate_up, gate_up_scales, laid, chosen.shape[1], names, activation)
    parts = _lower(inner, down, down_scales, weights.contiguous(), laid, names)
    (rows, count), width = chosen.shape, parts.shape[1]
    launch, answer = parameters("add_choices", *names), parts.new_empty((rows, width))
    _add_choices[(rows, divided_up(width, launch["block"]))](
        parts, chosen, answer, experts, width, COUNT=count, BLOCK=launch["block"], **compiled_with(launch)
    )
    return answer
