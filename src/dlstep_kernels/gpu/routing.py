"""Choose experts: a product split to fill the device, then one pass over each row's logits.

16-bit products are summed in another order than the twin's: nearly equal ratings may swap.
"""

# A `tl.constexpr` in a kernel holds a number.
# pyright: reportAssignmentType=false

import torch
import triton.language as tl
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch.nn.functional import linear
from triton.language import constexpr
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .launch import Parameters, architecture, compiled_with, divided_up, kernel, parameters, power_of_two
from .products import factors, multiply

MAX_ROWS = 4096
LEAST = constexpr(-2139095041)  # order key of -inf
NOTHING = constexpr(-(1 << 31))  # below all order keys


@kernel
def _multiply_part(
    hidden, weight, parts, hidden_stride, weight_stride, rows, experts, depth, each,
    ROWS: constexpr, COLUMNS: constexpr, DEPTH: constexpr, EVEN: constexpr, BULK: constexpr,
    EARLY: constexpr,
):  # fmt: skip
    """Store partial logits of some rows and experts, over one range of the width."""
    if EARLY:
        gdc_launch_dependents()
    across = tl.cdiv(experts, COLUMNS)
    first_row, start = tl.program_id(0) // across * ROWS, tl.program_id(0) % across * COLUMNS
    begin = tl.program_id(1) * each
    sums = multiply(
        hidden, weight, first_row, start, begin, tl.minimum(begin + each, depth), rows, experts, depth, hidden_stride,
        weight_stride, ROWS, COLUMNS, DEPTH, EVEN, BULK,
    )  # fmt: skip
    row, column = first_row + tl.arange(0, ROWS), start + tl.arange(0, COLUMNS)
    at = (tl.program_id(1) * rows + row.to(tl.int64))[:, None] * experts + column[None, :]
    tl.store(parts + at, sums, mask=(row < rows)[:, None] & (column < experts)[None, :])


@kernel
def _ordered(value):
    """Return an integer that orders values, NaN above all; integer reductions are faster."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(value != value, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))


@kernel
def _best_two(first, second, other_first, other_second):
    """Return the two largest of two descending pairs."""
    smaller = tl.minimum(first, other_first)
    return tl.maximum(first, other_first), tl.maximum(smaller, tl.maximum(second, other_second))


@kernel
def _in_kept_groups(order, GROUPS: constexpr, MOST_GROUPS: constexpr, KEPT: constexpr):
    """Replace the order keys of experts outside the kept groups by that of -inf."""
    first, second = tl.reduce((order, tl.full(order.shape, NOTHING, tl.int32)), 1, _best_two)
    # Keys to bits: they differ only for negative ratings, which a bias can cause.
    first ^= (first >> 31) & 0x7FFFFFFF
    second ^= (second >> 31) & 0x7FFFFFFF
    group = tl.arange(0, MOST_GROUPS)
    rating = _ordered(first.to(tl.float32, bitcast=True) + second.to(tl.float32, bitcast=True))
    rating = tl.where(group < GROUPS, rating, NOTHING)
    equal = (rating[None, :] == rating[:, None]) & (group[None, :] < group[:, None])
    better = tl.sum(((rating[None, :] > rating[:, None]) | equal).to(tl.int32), 1)
    return tl.where((better < KEPT)[:, None], order, tl.minimum(order, LEAST))


@kernel
def _scores(parts, row, rows, expert, there, EXPERTS: constexpr, SPLITS: constexpr, SOFTMAX: constexpr):
    """Return the scores of some experts of a row: logits if SOFTMAX, else their sigmoid."""
    logits = tl.zeros(expert.shape, tl.float32)
    for part in tl.static_range(SPLITS):
        start = parts + (part * rows + row).to(tl.int64) * EXPERTS
        logits += tl.load(start + expert, mask=there, other=0.0)
    return logits if SOFTMAX else 1.0 / (1.0 + tl.exp(-logits))


@kernel
def _choose_best(
    parts, bias, factors, chosen, weights, rows, scale,
    SPLITS: constexpr, GROUPS: constexpr, SIZE: constexpr, MOST_GROUPS: constexpr, MOST: constexpr,
    KEPT: constexpr, COUNT: constexpr, PLACES: constexpr, NORMALISED: constexpr, EARLY: constexpr,
):  # fmt: skip
    """Store the chosen experts of a row and their weights.

    With `factors`, a weight is the softmax times the expert's factor.
    MOST_GROUPS and MOST pad GROUPS and SIZE to powers of two.
    """
    if EARLY:
        gdc_wait()  # launched early: wait for the product
    row = tl.program_id(0)
    group, one = tl.arange(0, MOST_GROUPS)[:, None], tl.arange(0, MOST)[None, :]
    expert, there = group * SIZE + one, (group < GROUPS) & (one < SIZE)
    SOFTMAX: tl.constexpr = factors is not None
    ratings = _scores(parts, row, rows, expert, there, GROUPS * SIZE, SPLITS, SOFTMAX)
    if bias is not None:
        ratings += tl.load(bias + expert, mask=there, other=0.0).to(tl.float32)
    order = tl.where(there, _ordered(ratings), NOTHING)
    if KEPT < GROUPS:
        order = _in_kept_groups(order, GROUPS, MOST_GROUPS, KEPT)
    order, expert = tl.reshape(order, (MOST_GROUPS * MOST,)), tl.reshape(expert, (MOST_GROUPS * MOST,))
    place = tl.arange(0, PLACES)
    ids = tl.zeros([PLACES], tl.int32)
    for number in tl.static_range(COUNT):
        best = tl.min(tl.where(order == tl.max(order, 0), expert, 0x7FFFFFFF), 0)
        ids = tl.where(place == number, best, ids)
        order = tl.where(expert == best, NOTHING, order)
    # Recomputing the few chosen scores is cheaper than selecting them from all.
    shares = _scores(parts, row, rows, ids, place < COUNT, GROUPS * SIZE, SPLITS, SOFTMAX)
    if SOFTMAX:
        shares = tl.exp(shares - tl.max(tl.where(place < COUNT, shares, float("-inf")), 0))
    shares = tl.where(place < COUNT, shares, 0.0)
    if NORMALISED:
        shares = shares / (tl.sum(shares, 0) + 1e-20)
    if SOFTMAX:
        shares *= tl.load(factors + ids).to(tl.float32)
    at = row.to(tl.int64) * COUNT + place
    tl.store(chosen + at, ids.to(tl.int64), mask=place < COUNT)
    tl.store(weights + at, shares * scale, mask=place < COUNT)


def _logits(hidden: Tensor, weight: Tensor, early: bool) -> Float32[Tensor, "splits n experts"]:
    """Return addends of hidden @ weight.T; their number is a power of two.

    `early`: the next kernel may be launched before this one ends, and waits for it by itself.
    """
    if hidden.dtype == torch.float32 or not len(hidden):  # no work for tensor cores
        return linear(hidden, weight).float()[None]
    (rows, depth), experts, name = hidden.shape, weight.shape[0], architecture(hidden.device)
    # Launch parameters do not change beyond MAX_ROWS.
    chosen = parameters("multiply_part", f"{name}/n{min(power_of_two(rows), MAX_ROWS)}", name)
    blocks = divided_up(rows, chosen["rows"]) * divided_up(experts, chosen["columns"])
    tiles = divided_up(depth, chosen["depth"])
    splits = power_of_two(min(tiles, max(1, chosen["programs"] // blocks)) + 1) // 2
    parts = torch.empty((splits, rows, experts), dtype=torch.float32, device=hidden.device)
    left, right, options = factors(hidden, weight, chosen)
    _multiply_part[(blocks, splits)](
        left, right, parts, hidden.stride(0), weight.stride(0), rows, experts, depth,
        divided_up(tiles, splits) * chosen["depth"], EARLY=early, **options, **compiled_with(chosen),
    )  # fmt: skip
    return parts


def _choice(
    parts: Float[Tensor, "splits n experts"], bias: Tensor | None, factors: Tensor | None, scale: float, count: int,
    launch: Parameters, *, groups: int, kept_groups: int, normalised: bool,
) -> tuple[Int64[Tensor, "n count"], Float32[Tensor, "n count"]]:  # fmt: skip
    """Return the chosen experts and their weights, given addends of the logits."""
    splits, rows, experts = parts.shape
    size = experts // groups
    chosen = torch.empty((rows, count), dtype=torch.int64, device=parts.device)
    weights = torch.empty((rows, count), dtype=torch.float32, device=parts.device)
    _choose_best[(rows,)](
        parts, bias, factors, chosen, weights, rows, scale,
        SPLITS=splits, GROUPS=groups, SIZE=size, MOST_GROUPS=power_of_two(groups), MOST=power_of_two(size), KEPT=kept_groups,
        COUNT=count, PLACES=power_of_two(count), NORMALISED=normalised, EARLY=bool(launch.get("launch_pdl")),
        **compiled_with(launch),
    )  # fmt: skip
    return chosen, weights


def choose_experts(
    hidden: Float[Tensor, "n width"],
    weight: Float[Tensor, "experts width"],
    bias: Float[Tensor, " experts"],
    *,
    groups: int,
    kept_groups: int,
    count: int,
    normalised: bool,
    scale: float,
) -> tuple[Int64[Tensor, "n count"], Float32[Tensor, "n count"]]:
    """Return the twin's result up to the order of sums; dtypes of inputs must be equal."""
    hidden = hidden if hidden.stride(1) == 1 else hidden.contiguous()
    experts = weight.shape[0]
    assert experts % groups == 0 and count <= experts, "groups must have equal sizes, and at least `count` experts"
    assert kept_groups >= groups or experts > groups, "groups need two experts for their rating"
    launch = parameters("choose_best", f"{architecture(hidden.device)}/{hidden.dtype.itemsize}b")
    parts = _logits(hidden, weight, bool(launch.get("launch_pdl")))
    return _choice(parts, bias, None, scale, count, launch, groups=groups, kept_groups=kept_groups, normalised=normalised)


def softmax_experts(
    logits: Float[Tensor, "n experts"], factors: Float[Tensor, " experts"], *, count: int
) -> tuple[Int64[Tensor, "n count"], Float32[Tensor, "n count"]]:
    """Return the twin's result up to fp32 rounding of the weights."""
    parts, launch = logits.contiguous()[None], parameters("choose_best")
    return _choice(parts, None, factors, 1.0, count, launch, groups=1, kept_groups=1, normalised=True)
