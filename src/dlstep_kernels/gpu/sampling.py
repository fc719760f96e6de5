"""Sample from logits: each program reads one range of a row's vocabulary once and stores one part.

Scores are compared as in the twin, up to the rounding of the subtracted maximum: ids may differ if
the two best perturbed scores of a row are that close.
"""

import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.language import constexpr

from ..sampling import SIMPLE, Drawn, SamplerConfig, Settings
from .draws import complement, complements, gumbel, keep_largest, no_keys, order_key, value_of
from .launch import architecture, compiled_with, divided_up, kernel, parameters, power_of_two
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
    Parts,
    answer,
    capped,
    counters_of,
    finite,
    kept_keys,
    line_of,
    only,
    penalties_of,
    permitted,
    permitted_in,
    room,
    stream_of,
    table_of,
    temperature_of,
    words_of,
)

# Allowed distance of the largest logit from the base of sums: exp(2 * FAR) neither overflows
# nor vanishes; beyond FAR_FOR_ENTROPY an entropy loses its last digits.
FAR, FAR_FOR_ENTROPY = constexpr(60.0), constexpr(8.0)


@kernel
def _allowed(x, columns, vocab_size, mask_id, penalised, penalty):
    """Return logits after the penalty; forbidden ones become -inf (NaN if NaN or +inf)."""
    x = tl.where(columns == penalised, x - penalty, x)
    forbidden = tl.where(x < float("inf"), float("-inf"), float("nan"))
    return tl.where((columns < vocab_size) & (columns != mask_id), x, forbidden)


@kernel
def _sum_up(x, peak, top, inverse, total, moment, plain, ENTROPY: constexpr, PLAIN: constexpr):
    """Add a tile to the running sums, relative to the new maximum; return its weights, too."""
    before, peak = peak, tl.maximum(peak, top)
    base = tl.where(peak > float("-inf"), peak, 0.0)
    weights = tl.exp2((x - base) * (inverse * LOG2E))
    sunk = before - base  # unbounded, since a high temperature shrinks it
    moved = tl.maximum(sunk * inverse, LEAST)
    shrink = tl.exp(moved)
    if ENTROPY and not PLAIN:
        moment = (moment + total * moved) * shrink + weights * tl.maximum((x - base) * inverse, LEAST)
    total = total * shrink + weights
    if PLAIN:
        own = tl.exp2((x - base) * LOG2E)
        if ENTROPY:
            fallen = tl.maximum(sunk, LEAST)
            moment = (moment + plain * fallen) * tl.exp(fallen) + own * tl.maximum(x - base, LEAST)
        plain = plain * tl.exp(sunk) + own
    return peak, base, shrink, weights, total, moment, plain


@kernel
def _race(
    x, base, weights, start, columns, key, temperature, limit, racer, noise, winner,
    BLOCK: constexpr, GROUP: constexpr, HIGHEST: constexpr,
):  # fmt: skip
    """Update the best perturbed score (logit, noise, id), and the limit for a better one.

    The largest score + noise is the smallest -log(u) / weight, and -log(u) > 1 - u, so most tiles
    can be rejected without computing a logarithm.
    """
    remainder = complements(key, start, BLOCK, GROUP)
    if tl.max((remainder <= limit * weights).to(tl.int32), 0) > 0:
        # Compute the numbers again, from an equal start that the compiler cannot recognise. Triton computes a tensor in the
        # layout of the logits only if the tensor has a single use; else it would convert every tile through shared memory.
        noises = gumbel(complements(key, tl.min(columns, 0), BLOCK, GROUP))
        scores = tl.div_rn(x - base, temperature) + noises
        top = tl.max(scores, 0)
        held = tl.div_rn(racer - base, temperature) + noise
        better = top > held
        if HIGHEST:
            better = top >= held
        if better:
            if HIGHEST:
                winner = tl.max(tl.where(scores == top, columns, -1), 0)
            else:
                winner = tl.min(tl.where(scores == top, columns, 0x7FFFFFFF), 0)
            racer = tl.sum(tl.where(columns == winner, x, 0.0), 0)
            noise = gumbel(complement(key, 0, winner))
            held = top
        limit = tl.exp(-held) * 1.001
    return limit, racer, noise, winner


@kernel
def _read_tiles(
    logits, row_stride, width, vocab_size, mask_id, tiles, splits, plane,
    temperatures, seeds, positions, draws, penalty_ids, penalties, mask_words, mask_rows, words, cap, numbers, winners, keys,
    BLOCK: constexpr, GROUP: constexpr, KEPT: constexpr, HIGHEST: constexpr, ENTROPY: constexpr,
    PLAIN: constexpr, RACED: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * tiles * BLOCK
    stop = start + tiles * BLOCK
    columns = start + tl.arange(0, BLOCK)
    logits += row * row_stride
    inverse, penalised, penalty = 1.0, -1, 0.0
    if RACED:
        temperature, inverse, hot = temperature_of(temperatures, row, True)
        key = stream_of(seeds, positions, draws, row, True, PURPOSE)
        limit, racer, noise, winner = float("inf"), float("-inf"), float("-inf"), -1
    if penalty_ids is not None:
        penalised, penalty = tl.load(penalty_ids + row).to(tl.int32), tl.load(penalties + row)
    if mask_words is not None:
        line = line_of(mask_words, mask_rows, words, row, True)
        coming_words = words_of(line, words, start, BLOCK // 8, 8)
    peak, floor, kept = float("-inf"), float("-inf"), no_keys(KEPT)
    total, moment, plain = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    coming = tl.load(logits + columns, mask=columns < width, other=float("-inf"))
    for _ in range(tiles):
        x = capped(coming.to(tl.float32), cap)
        # Prefetch the next tile while this one is processed.
        later = columns + BLOCK
        coming = tl.load(logits + later, mask=(later < width) & (later < stop), other=float("-inf"))
        named = ((mask_id >= start) & (mask_id < start + BLOCK)) | ((penalised >= start) & (penalised < start + BLOCK))
        if named | (start + BLOCK > vocab_size):
            x = _allowed(x, columns, vocab_size, mask_id, penalised, penalty)
        if mask_words is not None:
            x = only(x, tl.reshape(permitted_in(coming_words, start, BLOCK // 8, 8), (BLOCK,)))
            coming_words = words_of(line, words, start + BLOCK, BLOCK // 8, 8)
        top = tl.max(x, 0)
        peak, base, shrink, weights, total, moment, plain = _sum_up(x, peak, top, inverse, total, moment, plain, ENTROPY, PLAIN)
        if top >= floor:
            kept = keep_largest(kept, order_key(x, columns, HIGHEST))
            floor = value_of(tl.min(kept, 0))
        if RACED:
            limit = limit / shrink
            # Skip the tile if even the largest possible noise (u next to 1) cannot win.
            if hot & (limit * tl.exp(tl.maximum((top - base) * inverse, LEAST)) >= 5.9e-08):
                limit, racer, noise, winner = _race(
                    x, base, weights, start, columns, key, temperature, limit, racer, noise, winner, BLOCK, GROUP, HIGHEST
                )  # fmt: skip
        start += BLOCK
        columns = later
    part = row * splits + tl.program_id(1)
    tl.store(numbers + MAXIMA * plane + part, peak)
    tl.store(numbers + TOTALS * plane + part, tl.sum(total, 0))
    if ENTROPY:
        tl.store(numbers + MOMENTS * plane + part, tl.sum(moment, 0))
    if PLAIN:
        tl.store(numbers + PLAINS * plane + part, tl.sum(plain, 0))
    if RACED:
        tl.store(numbers + RACERS * plane + part, racer)
        tl.store(winners + part, winner)
    tl.store(keys + part * KEPT + tl.arange(0, KEPT), kept)


@kernel
def _scan(
    logits, first, stop, width, vocab_size, mask_id, penalised, penalty, line, words, base, places,
    BLOCK: constexpr, GROUP: constexpr, HIGHEST: constexpr, ENTROPY: constexpr,
):  # fmt: skip
    """Read a range once, without communication between threads until its end.

    Returns the largest logit, the start of its group of numbers, and sums relative to `base`.
    """
    tops, starts = tl.full([BLOCK // GROUP], float("-inf"), tl.float32), tl.zeros([BLOCK // GROUP], tl.int32)
    total, moment = tl.zeros([BLOCK // GROUP], tl.float32), tl.zeros([BLOCK // GROUP], tl.float32)
    coming = tl.load(logits + first + places, mask=first + places < width, other=float("-inf"))
    if line is not None:
        coming_words = words_of(line, words, first, BLOCK // GROUP, GROUP)
    for start in range(first, stop, BLOCK):
        x = coming.to(tl.float32)
        # Prefetch the next tile while this one is processed.
        later = start + BLOCK
        inside = (later + places < width) & (later < stop)
        coming = tl.load(logits + later + places, mask=inside, other=float("-inf"))
        named = ((mask_id >= start) & (mask_id < later)) | ((penalised >= start) & (penalised < later))
        if named | (later > vocab_size):
            x = _allowed(x, start + places, vocab_size, mask_id, penalised, penalty)
        if line is not None:
            x = only(x, permitted_in(coming_words, start, BLOCK // GROUP, GROUP))
            coming_words = words_of(line, words, later, BLOCK // GROUP, GROUP)
        top = tl.max(x, 1)
        better = top > tops
        if HIGHEST:
            better = top >= tops
        tops, starts = tl.where(better, top, tops), tl.where(better, start, starts)
        # Subtract first: the rounding of a product with the logit itself grows with the logit.
        weights = tl.exp2((x - base) * LOG2E)
        total += tl.sum(weights, 1)
        if ENTROPY:
            moment += tl.sum(weights * tl.maximum(x - base, LEAST), 1)
    peak = tl.max(tops, 0)
    starts += tl.arange(0, BLOCK // GROUP) * GROUP
    place = tl.min(tl.where(tops == peak, starts, width - 1), 0)
    if HIGHEST:
        place = tl.max(tl.where(tops == peak, starts, 0), 0)
    return peak, place, tl.sum(total, 0), tl.sum(moment, 0)


@kernel
def _scan_tiles(
    logits, row_stride, width, vocab_size, mask_id, tiles, splits, plane, penalty_ids, penalties, mask_words, mask_rows, words,
    numbers, keys,
    BLOCK: constexpr, GROUP: constexpr, HIGHEST: constexpr, ENTROPY: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * tiles * BLOCK
    stop = tl.minimum(first + tiles * BLOCK, width)
    logits += row * row_stride
    penalised, penalty = -1, 0.0
    if penalty_ids is not None:
        penalised, penalty = tl.load(penalty_ids + row).to(tl.int32), tl.load(penalties + row)
    line = None
    if mask_words is not None:
        line = line_of(mask_words, mask_rows, words, row, True)
    places = (tl.arange(0, BLOCK // GROUP) * GROUP)[:, None] + tl.arange(0, GROUP)[None, :]
    # Sums are relative to the largest of the first logits; if that is far off, they are redone.
    kept = (first + places < vocab_size) & (first + places != mask_id)
    if mask_words is not None:
        kept &= permitted(line, words, first + places)
    x = tl.load(logits + first + places, mask=kept, other=float("-inf"))
    base = tl.max(tl.max(x.to(tl.float32), 1), 0)
    base = tl.where(finite(base), base, 0.0)
    again, peak, place, total, moment = True, float("-inf"), 0, 0.0, 0.0
    while again:
        peak, place, total, moment = _scan(
            logits, first, stop, width, vocab_size, mask_id, penalised, penalty, line, words, base, places,
            BLOCK, GROUP, HIGHEST, ENTROPY,
        )  # fmt: skip
        again = (tl.abs(peak - base) > (FAR_FOR_ENTROPY if ENTROPY else FAR)) & (peak > float("-inf"))
        base = tl.where(again, peak, base)
    moved = tl.where(peak > float("-inf"), base - peak, 0.0)
    shrink = tl.exp2(moved * LOG2E)  # the reciprocal of the largest weight, with the same rounding
    part = row * splits + tl.program_id(1)
    tl.store(numbers + MAXIMA * plane + part, peak)
    tl.store(numbers + TOTALS * plane + part, total * shrink)
    if ENTROPY:
        tl.store(numbers + MOMENTS * plane + part, (moment + total * moved) * shrink)
    group = place + tl.arange(0, GROUP)
    x = tl.load(logits + group, mask=group < width, other=float("-inf")).to(tl.float32)
    x = _allowed(x, group, vocab_size, mask_id, penalised, penalty)
    if mask_words is not None:
        x = only(x, permitted(line, words, group))
    tl.store(keys + part, tl.max(order_key(x, group, HIGHEST), 0))


def sample(
    logits: Float[Tensor, "n vocab"],
    settings: Settings,
    *,
    vocab_size: int,
    mask_id: int | None,
    sampler: SamplerConfig = SIMPLE,
) -> Drawn:
    """Return the twin's result for settings without filters; fp32 sums are in another order."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    width = logits.shape[1]
    plain = settings.temperatures is not None and not sampler.tempered
    parts = _parts_of(logits, settings, min(vocab_size, width), -1 if mask_id is None else mask_id, sampler)
    drawn = answer(parts, settings, sampler, vocab_size=vocab_size, plain=plain)
    if settings.scored_ids is None:
        return drawn
    allowed = {"vocab_size": min(vocab_size, width), "mask_id": mask_id}
    return with_named(drawn, parts, settings, logits, **allowed, plain=plain, whole=True)


def _parts_of(logits: Tensor, settings: Settings, vocab_size: int, mask_id: int, sampler: SamplerConfig) -> Parts:
    """Return parts with all requested statistics, or with only their largest logit if that is enough."""
    rows, width = logits.shape
    raced = settings.temperatures is not None
    listed = raced or kept_keys(sampler) > 1
    device = architecture(logits.device)
    name = f"{device}/{logits.dtype.itemsize}b" + ("/raced" if raced else "")
    names = f"{name}/n{power_of_two(max(1, rows))}", name, device
    chosen = parameters("read_tiles" if listed else "scan_tiles", *names)
    needed = divided_up(width, chosen["block"])
    tiles = divided_up(needed, min(needed, max(1, chosen["programs"] // max(rows, 1))))  # per program
    splits = divided_up(needed, tiles)
    parts = room(rows, splits, sampler, logits.device)
    read = logits, logits.stride(0), width, vocab_size, mask_id, tiles, splits, rows * splits
    options = {
        "BLOCK": chosen["block"],
        "GROUP": 16 // logits.itemsize,
        "HIGHEST": sampler.ties == "highest",
        "ENTROPY": "entropy" in sampler.statistics,
        **compiled_with(chosen),
    }
    if listed:
        _read_tiles[(rows, splits)](
            *read, settings.temperatures, *counters_of(settings), *penalties_of(settings), *table_of(settings), sampler.cap,
            parts.numbers, parts.winners, parts.keys,
            KEPT=parts.keys.shape[2], PLAIN=raced and not sampler.tempered, RACED=raced, **options,
        )  # fmt: skip
    else:
        _scan_tiles[(rows, splits)](*read, *penalties_of(settings), *table_of(settings), parts.numbers, parts.keys, **options)
    return parts
