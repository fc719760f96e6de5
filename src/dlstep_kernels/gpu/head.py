"""Sample from hidden states without writing logits to memory.

Each program multiplies rows with a tile of the head's weight and stores one part per row. The logits of a tile exist
only in registers.
Logits are summed in fp32 in another order than the twin's: ids may differ for nearly equal ones.
"""

# A `tl.constexpr` in a kernel holds a number.
# pyright: reportAssignmentType=false

import torch
import triton.language as tl
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from triton.language import constexpr

from ..sampling import SIMPLE, Drawn, SamplerConfig, Settings
from ..vocabulary import Share, cut_of
from .draws import complement, order_key
from .launch import Parameters, architecture, compiled_with, divided_up, kernel, parameters, power_of_two
from .named import with_named
from .parts import (
    LEAST,
    LOG2E,
    MAXIMA,
    MOMENTS,
    PLAINS,
    PURPOSE,
    RACERS,
    TOTALS,
    answer,
    counters_of,
    kept_keys,
    line_of,
    only,
    penalties_of,
    room,
    side_by_side,
    stream_of,
    table_of,
    temperature_of,
)
from .products import factors, multiply


@kernel
def _first_of(best, values, column, HIGHEST: constexpr):
    """Return the column of each row's `best` among its values."""
    if HIGHEST:
        return tl.max(tl.where(values == best[:, None], column[None, :], -1), 1)
    return tl.min(tl.where(values == best[:, None], column[None, :], 0x7FFFFFFF), 1)


@kernel
def _halves(x, ROWS: constexpr, COLUMNS: constexpr):
    """Return the left and the right half of the columns."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@kernel
def _sums(x, base, inverse, ENTROPY: constexpr, PLAIN: constexpr):
    """Return three sums of exp(x - base): at the temperature; weighted by scores (with PLAIN, at 1); at temperature 1."""
    shifted = x - base[:, None]
    scores = shifted * inverse[:, None]
    weights = tl.exp2(shifted * (inverse * LOG2E)[:, None])
    total = tl.sum(weights, 1)
    moment, plain = total, total
    if PLAIN:
        scores, weights = shifted, tl.exp2(shifted * LOG2E)
        plain = tl.sum(weights, 1)
    if ENTROPY:
        moment = tl.sum(weights * tl.maximum(scores, LEAST), 1)
    return total, moment, plain


@kernel
def _store_sums(x, peak, inverse, numbers, part, plane, inside, ROWS: constexpr, COLUMNS: constexpr,
                ENTROPY: constexpr, PLAIN: constexpr):  # fmt: skip
    """Store the sums of a tile, computed by halves to save registers."""
    base = tl.where(peak > float("-inf"), peak, 0.0)
    left, right = _halves(x, ROWS, COLUMNS)
    total, moment, plain = _sums(left, base, inverse, ENTROPY, PLAIN)
    other_total, other_moment, other_plain = _sums(right, base, inverse, ENTROPY, PLAIN)
    total = total + other_total
    tl.store(numbers + MAXIMA * plane + part, peak, mask=inside)
    tl.store(numbers + TOTALS * plane + part, total, mask=inside)
    if ENTROPY:
        tl.store(numbers + MOMENTS * plane + part, moment + other_moment, mask=inside)
    if PLAIN:
        tl.store(numbers + PLAINS * plane + part, plain + other_plain, mask=inside)


@kernel
def _race_half(x, base, scale, key, start, COLUMNS: constexpr, HIGHEST: constexpr):
    """Return each row's smallest -log(u) / weight (largest score + noise), its column and logit."""
    # On tensor cores, a thread has pairs of neighbouring columns, which share a Philox block. LLVM only merges the blocks if
    # nothing else uses the range of places, so `column` below uses a different range.
    remainder = complement(key[:, None], start - COLUMNS, tl.arange(COLUMNS, 2 * COLUMNS)[None, :])
    times = -tl.log(1.0 - remainder) * tl.exp2((base[:, None] - x) * scale[:, None])
    least = tl.min(times, 1)
    column = start + tl.arange(0, COLUMNS)
    winner = _first_of(least, times, column, HIGHEST)
    return least, winner, tl.sum(tl.where(column[None, :] == winner[:, None], x, 0.0), 1)


@kernel
def _race(x, peak, inverse, key, start, ROWS: constexpr, COLUMNS: constexpr, HIGHEST: constexpr):
    """Return column (-1: none) and logit of each row's best perturbed score, by halves."""
    base, scale = tl.where(peak > float("-inf"), peak, 0.0), inverse * LOG2E
    left, right = _halves(x, ROWS, COLUMNS)
    HALF: tl.constexpr = COLUMNS // 2
    least, winner, racer = _race_half(left, base, scale, key, start, HALF, HIGHEST)
    other_least, other_winner, other_racer = _race_half(right, base, scale, key, start + HALF, HALF, HIGHEST)
    better = other_least < least
    if HIGHEST:
        better = other_least <= least
    winner = tl.where(better, other_winner, winner)
    return tl.where(peak > float("-inf"), winner, -1), tl.where(better, other_racer, racer)


@kernel
def _masked(x, mask_words, mask_rows, words, row, inside, start_id, ROWS: constexpr, COLUMNS: constexpr):
    """Return the logits under the masks of rows, if there are any.

    A tile may start anywhere in a word, so each 32 columns take their bits from two words. To load
    the word of each column would spill registers.
    """
    if mask_words is not None:
        SOME: tl.constexpr = 32 if COLUMNS > 32 else COLUMNS
        place = (start_id >> 5) + tl.arange(0, COLUMNS // SOME)
        at = line_of(mask_words, mask_rows, words, row, inside)[:, None] + place[None, :]
        low = tl.load(at, mask=(place < words)[None, :], other=0).to(tl.uint32, bitcast=True)
        high = tl.load(at + 1, mask=(place + 1 < words)[None, :], other=0).to(tl.uint32, bitcast=True)
        bits = (low >> (start_id & 31)) | ((high << 1) << (31 - (start_id & 31)))
        kept = (bits[:, :, None] >> tl.arange(0, SOME)[None, None, :].to(tl.uint32)) & 1
        x = tl.reshape(x, (ROWS, COLUMNS // SOME, SOME))
        x = tl.reshape(only(x, kept > 0), (ROWS, COLUMNS))
    return x


@kernel
def _read_head(
    hidden, weight, bias, hidden_stride, weight_stride, rows, filled, width, first_id, depth, vocab_size, mask_id,
    splits, plane, temperatures, seeds, positions, draws, penalty_ids, penalties, mask_words, mask_rows, words,
    numbers, winners, keys,
    ROWS: constexpr, COLUMNS: constexpr, DEPTH: constexpr, EVEN: constexpr, KEPT: constexpr,
    HIGHEST: constexpr, ENTROPY: constexpr, PLAIN: constexpr, RACED: constexpr, BULK: constexpr,
):  # fmt: skip
    if filled is not None:
        rows = tl.load(filled).to(tl.int32)
    # Neighbouring programs read the same part of the weight.
    blocks = tl.cdiv(rows, ROWS)
    tile = tl.program_id(0) // tl.maximum(blocks, 1)
    if (tile >= splits) | (blocks == 0):
        return
    first_row, start = tl.program_id(0) % blocks * ROWS, tile * COLUMNS
    row = first_row + tl.arange(0, ROWS)
    inside = row < rows
    column = start + tl.arange(0, COLUMNS)
    ids, start_id = first_id + column, first_id + start
    x = multiply(
        hidden, weight, first_row, start, 0, depth, rows, width, depth, hidden_stride, weight_stride,
        ROWS, COLUMNS, DEPTH, EVEN, BULK,
    )  # fmt: skip
    part = row.to(tl.int64) * splits + tile
    if bias is not None:
        x += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    masked = (mask_id >= start_id) & (mask_id < start_id + COLUMNS)
    if (start + COLUMNS > width) | (start_id + COLUMNS > vocab_size) | masked:
        # Forbidden logits do not count, but NaN or +inf among them must make the row broken.
        allowed = (column < width) & (ids < vocab_size) & (ids != mask_id)
        x = tl.where(allowed[None, :] | ((column < width)[None, :] & ~(x < float("inf"))), x, float("-inf"))
        x = tl.where((~allowed)[None, :] & (x > float("-inf")), float("nan"), x)
    x = _masked(x, mask_words, mask_rows, words, row, inside, start_id, ROWS, COLUMNS)
    if penalty_ids is not None:
        penalised = tl.load(penalty_ids + row, mask=inside, other=-1).to(tl.int32)
        penalty = tl.load(penalties + row, mask=inside, other=0.0)
        x = tl.where(ids[None, :] == penalised[:, None], x - penalty[:, None], x)
    inverse, hot = tl.full([ROWS], 1.0, tl.float32), inside
    if RACED:
        _, inverse, hot = temperature_of(temperatures, row, inside)
    peak = tl.max(x, 1)
    _store_sums(x, peak, inverse, numbers, part, plane, inside, ROWS, COLUMNS, ENTROPY, PLAIN)
    if RACED and tl.max(hot.to(tl.int32), 0) > 0:
        key = stream_of(seeds, positions, draws, row, inside, PURPOSE)
        winner, racer = _race(x, peak, inverse, key, start_id, ROWS, COLUMNS, HIGHEST)
        tl.store(winners + part, winner, mask=inside)
        tl.store(numbers + RACERS * plane + part, racer, mask=inside)
    for place in tl.static_range(KEPT):
        if place > 0:
            peak = tl.max(x, 1)
        found = _first_of(peak, x, ids, HIGHEST)
        tl.store(keys + part * KEPT + place, order_key(peak, found, HIGHEST), mask=inside)
        if place + 1 < KEPT:
            x = tl.where(ids[None, :] == found[:, None], float("-inf"), x)


@kernel
def _read_named(
    hidden, weight, bias, hidden_stride, weight_stride, filled, width, depth, named, logits, DEPTH: constexpr,
):  # fmt: skip
    """Compute the logit of one scored id of a row. The result is undefined for an id outside the vocabulary shard."""
    row = tl.program_id(0).to(tl.int64)
    if filled is not None and row >= tl.load(filled):
        return
    at = row * tl.num_programs(1) + tl.program_id(1)
    column = tl.minimum(tl.maximum(tl.load(named + at), 0), width - 1).to(tl.int64)
    sums = tl.zeros([DEPTH], tl.float32)
    for first in range(0, depth, DEPTH):
        place = first + tl.arange(0, DEPTH)
        inside = place < depth
        left = tl.load(hidden + row * hidden_stride + place, mask=inside, other=0.0).to(tl.float32)
        sums += left * tl.load(weight + column * weight_stride + place, mask=inside, other=0.0).to(tl.float32)
    x = tl.sum(sums, 0)
    if bias is not None:
        x += tl.load(bias + column).to(tl.float32)
    tl.store(logits + at, x)


def _scored_logits(
    hidden: Tensor,
    weight: Tensor,
    ids: Int64[Tensor, "n k"],
    bias: Tensor | None,
    filled: Tensor | None,
) -> Float32[Tensor, "n k"]:
    """Return the logits of scored ids, before penalties."""
    logits = torch.empty(ids.shape, dtype=torch.float32, device=hidden.device)
    chosen = parameters("read_named", architecture(hidden.device))
    if ids.numel():
        _read_named[tuple(ids.shape)](
            hidden, weight, bias, hidden.stride(0), weight.stride(0), filled, weight.shape[0], hidden.shape[1], ids, logits,
            DEPTH=min(chosen["depth"], power_of_two(hidden.shape[1])), **compiled_with(chosen),
        )  # fmt: skip
    return logits


def _of_owners(logits: Float32[Tensor, "n k"], ids: Int64[Tensor, "n k"], share: Share) -> Float32[Tensor, "n k"]:
    """Return, for each scored id, the logit from the rank whose share contains the id."""
    owners = (ids // share.cut.most).clamp(0, (share.cut.total - 1) // share.cut.most)
    return torch.stack(share.exchange(logits)).gather(0, owners[None])[0]


def _chosen(hidden: Tensor, raced: bool, kept: int) -> Parameters:
    """Return launch parameters by architecture, dtype size, register use (list, noise) and rows."""
    name = f"{architecture(hidden.device)}/{hidden.dtype.itemsize}b"
    rows = f"n{min(max(16, power_of_two(hidden.shape[0])), 256)}"
    kind = f"{name}/listed" if kept > 1 else f"{name}/raced" if raced else name
    return parameters("read_head", f"{kind}/{rows}", kind, name)


def head_and_sample(
    hidden: Float[Tensor, "n hidden"],
    weight: Float[Tensor, "vocab hidden"],
    settings: Settings,
    *,
    vocab_size: int,
    mask_id: int | None,
    sampler: SamplerConfig = SIMPLE,
    bias: Float[Tensor, " vocab"] | None = None,
    filled: Int64[Tensor, "1"] | None = None,
    share: Share | None = None,
) -> Drawn:
    """Return the twin's result, for settings without filters and inputs of equal dtypes.

    Rows from `filled` on cost nothing and are undefined. Each rank with a `share` of the weight
    reads only its own, and the ranks exchange parts.
    """
    hidden = hidden if hidden.stride(1) == 1 else hidden.contiguous()
    rows, depth = hidden.shape
    cut = cut_of(len(weight), 0, 1) if share is None else share.cut
    if not cut.count:  # a rank without ids gets a forbidden one with logit 0
        hidden, weight, bias = torch.zeros_like(hidden), hidden.new_zeros(1, depth), None
    raced = settings.temperatures is not None
    plain = raced and not sampler.tempered
    chosen = _chosen(hidden, raced, kept_keys(sampler))
    splits = divided_up(cut.most, chosen["columns"])
    left, right, options = factors(hidden, weight, chosen)
    parts = room(rows, splits, sampler, hidden.device)
    if rows:
        _read_head[(divided_up(rows, chosen["rows"]) * splits,)](
            left, right, bias, hidden.stride(0), weight.stride(0), rows, filled, len(weight), cut.first, depth, vocab_size,
            -1 if mask_id is None else mask_id, splits, rows * splits, settings.temperatures, *counters_of(settings),
            *penalties_of(settings), *table_of(settings), parts.numbers, parts.winners, parts.keys,
            KEPT=parts.keys.shape[2], HIGHEST=sampler.ties == "highest", ENTROPY="entropy" in sampler.statistics,
            PLAIN=plain, RACED=raced, **options, **compiled_with(chosen),
        )  # fmt: skip
    if share is not None:
        parts = side_by_side(parts, share.exchange)
    drawn = answer(parts, settings, sampler, vocab_size=vocab_size, plain=plain, filled=filled)
    if settings.scored_ids is None:
        return drawn
    logits = _scored_logits(hidden, weight, (settings.scored_ids - cut.first).contiguous(), bias, filled)
    if share is not None:
        logits = _of_owners(logits, settings.scored_ids, share)
    allowed = {"vocab_size": min(vocab_size, cut.total), "mask_id": mask_id}
    return with_named(drawn, parts, settings, logits, **allowed, plain=plain, whole=False, filled=filled)
