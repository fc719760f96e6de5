"""Merge partial results over ranges of the vocabulary to one per row: the second half of sampling.

A part has the largest logit of its ids, sums relative to it, the order keys of its largest logits,
and id and logit of its best perturbed score (its race). Winners are compared as in the twin.
"""

# In kernels, `tl.static_range` is iterable, and a `constexpr` is a number.
# pyright: reportGeneralTypeIssues=false

from dataclasses import dataclass

import torch
import triton.language as tl
from jaxtyping import Float32, Int32, Int64
from torch import Tensor
from triton.language import constexpr

from ..draws import RENOISE, SAMPLE
from ..sampling import Drawn, SamplerConfig, Settings
from ..vocabulary import Exchange
from .draws import NO_KEY, complement, draw_key, gumbel, index_of, keep_largest, no_keys, random_id, value_of
from .launch import architecture, compiled_with, kernel, parameters, power_of_two

PURPOSE, OTHER_PURPOSE = constexpr(SAMPLE), constexpr(RENOISE)
MAXIMA, TOTALS, MOMENTS, PLAINS, RACERS = (constexpr(plane) for plane in range(5))
PLANES = 5
LEAST = constexpr(-200.0)  # its exponential is 0 in fp32
LOG2E = constexpr(1.4426950408889634)
TINY = constexpr(1.1754943508222875e-38)


@dataclass(frozen=True, slots=True)
class Parts:
    """`splits` parts of each of `n` rows: planes of numbers, race winners, largest order keys."""

    numbers: Float32[Tensor, "planes n splits"]
    winners: Int32[Tensor, "n splits"]
    keys: Int64[Tensor, "n splits kept"]


def kept_keys(sampler: SamplerConfig) -> int:
    """Return the number of largest logits that a part must keep."""
    return power_of_two(max(sampler.best, 2 if "margin" in sampler.statistics else 1))


def room(rows: int, splits: int, sampler: SamplerConfig, device: torch.device) -> Parts:
    """Return uninitialised parts."""
    return Parts(
        torch.empty((PLANES, rows, splits), dtype=torch.float32, device=device),
        torch.empty((rows, splits), dtype=torch.int32, device=device),
        torch.empty((rows, splits, kept_keys(sampler)), dtype=torch.int64, device=device),
    )


def counters_of(settings: Settings) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return seeds, positions and draws; None if no row needs them."""
    noise = settings.noise
    return (None, None, None) if noise is None else (noise.seeds, noise.positions, noise.draws)


def penalties_of(settings: Settings) -> tuple[Tensor | None, Tensor | None]:
    """Return the penalised id and the amount of each row; None without penalties."""
    return (None, None) if settings.penalty is None else (settings.penalty.ids, settings.penalty.amounts)


def table_of(settings: Settings) -> tuple[Int32[Tensor, "lines words"] | None, Int64[Tensor, " n"] | None, int | None]:
    """Return the table of token masks, the line of each row, and the words of a line; None without masks."""
    masks = settings.masks
    return (None, None, None) if masks is None else (masks.words.contiguous(), masks.rows, masks.words.shape[1])


def side_by_side(parts: Parts, exchange: Exchange) -> Parts:
    """Return the concatenated parts of all ranks, with equally many each and ids of the whole."""
    return Parts(
        torch.cat(exchange(parts.numbers), 2), torch.cat(exchange(parts.winners), 1), torch.cat(exchange(parts.keys), 1)
    )


@kernel
def temperature_of(temperatures, rows, inside):
    """Return the temperature (1 for greedy rows), its inverse, and whether the row is sampled."""
    given = tl.load(temperatures + rows, mask=inside, other=0.0)
    hot = given > 0.0
    temperature = tl.maximum(tl.where(hot, given, 1.0), TINY)
    return temperature, tl.maximum(1.0 / temperature, TINY), hot


@kernel
def stream_of(seeds, positions, draws, rows, inside, OF: constexpr):
    """Return the key of each row's stream."""
    seed = tl.load(seeds + rows, mask=inside, other=0)
    position = tl.load(positions + rows, mask=inside, other=0)
    return draw_key(seed, position, tl.load(draws + rows, mask=inside, other=0), OF)


@kernel
def capped(x, cap):
    """Return cap * tanh(x / cap), or `x` if `cap` is None. An exponential is faster than tanh."""
    if cap is not None:
        x = cap - 2.0 * cap / (1.0 + tl.exp(x * (2.0 / cap)))
    return x


@kernel
def line_of(mask_words, mask_rows, words, rows, inside):
    """Return where the token mask of each row is."""
    return mask_words + tl.load(mask_rows + rows, mask=inside, other=0) * words


@kernel
def permitted(line, words, ids):
    """Return whether a token mask has each id; it has none after its last word."""
    place = ids >> 5
    return ((tl.load(line + place, mask=place < words, other=0) >> (ids & 31)) & 1) > 0


@kernel
def words_of(line, words, first, GROUPS: constexpr, GROUP: constexpr):
    """Return, for each group of ids from `first` on, the word of a token mask with its bits; 0 after the last word.

    Loading a word for each id would take longer than reading the logits.
    """
    place = (first + tl.arange(0, GROUPS) * GROUP) >> 5
    return tl.load(line + place, mask=place < words, other=0)


@kernel
def permitted_in(word, first, GROUPS: constexpr, GROUP: constexpr):
    """Return, by group, whether a token mask allows each id from `first` on; `word` has the word of each group."""
    ids = first + (tl.arange(0, GROUPS) * GROUP)[:, None] + tl.arange(0, GROUP)[None, :]
    return ((word[:, None] >> (ids & 31)) & 1) > 0


@kernel
def only(x, kept):
    """Return logits; others than `kept` become -inf, but NaN if NaN or +inf, which break a row."""
    return tl.where(kept, x, x - float("inf"))


@kernel
def finite(x):
    """Return whether a number is neither infinite nor NaN."""
    return (x > float("-inf")) & (x < float("inf"))


@kernel
def peak_of(numbers, row, plane, splits, CHUNK: constexpr):
    """Return the largest logit of a row's parts, and the base of its sums: the same number if it is finite, else 0."""
    peak = float("-inf")
    for first in range(0, splits, CHUNK):
        part = first + tl.arange(0, CHUNK)
        maxima = tl.load(numbers + MAXIMA * plane + row * splits + part, mask=part < splits, other=float("-inf"))
        peak = tl.maximum(peak, tl.max(maxima, 0))
    return peak, tl.where(finite(peak), peak, 0.0)


@kernel
def add_up(numbers, keys, row, base, inverse, plane, splits, CHUNK: constexpr, KEPT: constexpr,
            ENTROPY: constexpr, PLAIN: constexpr):  # fmt: skip
    """Return the sums over all parts relative to `base`, and the largest keys if there are `keys`.

    With PLAIN, the moment is that of the plain sum.
    """
    total, moment, plain, kept = 0.0, 0.0, 0.0, no_keys(KEPT)
    for first in range(0, splits, CHUNK):
        part = first + tl.arange(0, CHUNK)
        inside = part < splits
        at = row * splits + part
        sunk = tl.load(numbers + MAXIMA * plane + at, mask=inside, other=float("-inf")) - base
        moved = tl.maximum(sunk * inverse, LEAST)
        shrink = tl.exp(moved)
        share = tl.load(numbers + TOTALS * plane + at, mask=inside, other=0.0)
        total += tl.sum(share * shrink, 0)
        if PLAIN:
            moved = tl.maximum(sunk, LEAST)
            shrink = tl.exp(moved)
            share = tl.load(numbers + PLAINS * plane + at, mask=inside, other=0.0)
            plain += tl.sum(share * shrink, 0)
        if ENTROPY:
            own = tl.load(numbers + MOMENTS * plane + at, mask=inside, other=0.0)
            moment += tl.sum((own + share * moved) * shrink, 0)
        if keys is not None:
            place = first * KEPT + tl.arange(0, CHUNK * KEPT)
            more = tl.load(keys + row * splits * KEPT + place, mask=place < splits * KEPT, other=NO_KEY)
            kept = keep_largest(kept, more)
    return total, moment, plain, kept


@kernel
def _winner(numbers, winners, row, base, temperature, key, plane, splits, CHUNK: constexpr, HIGHEST: constexpr):
    """Return id and logit of the best perturbed score."""
    best, token, logit = float("-inf"), -1, float("-inf")
    for first in range(0, splits, CHUNK):
        part = first + tl.arange(0, CHUNK)
        at = row * splits + part
        ids = tl.load(winners + at, mask=part < splits, other=-1)
        racers = tl.load(numbers + RACERS * plane + at, mask=ids >= 0, other=float("-inf"))
        scores = tl.div_rn(racers - base, temperature) + gumbel(complement(key, 0, tl.maximum(ids, 0)))
        scores = tl.where(ids >= 0, scores, float("-inf"))
        top = tl.max(scores, 0)
        if HIGHEST:
            found = tl.max(tl.where(scores == top, ids, -1), 0)
            better = (top > best) | ((top == best) & (found > token))
        else:
            found = tl.min(tl.where(scores == top, ids, 0x7FFFFFFF), 0)
            better = (top > best) | ((top == best) & (found < token))
        if better:
            best, token = top, found
            logit = tl.max(tl.where(ids == found, racers, float("-inf")), 0)
    return token, logit


@kernel
def _list_best(kept, base, inverse, total, broken, ids, probabilities, row, BEST: constexpr, HIGHEST: constexpr):
    """Store the most probable ids in order, then id 0 with probability 0 if there are too few."""
    for place in tl.static_range(BEST):
        key = tl.max(kept, 0)
        value = value_of(key)
        there = (value > float("-inf")) & (broken == 0)
        probability = tl.exp(tl.maximum((value - base) * inverse, LEAST)) / total
        tl.store(probabilities + row * BEST + place, tl.where(there, probability, 0.0))
        tl.store(ids + row * BEST + place, tl.where(broken > 0, -1, tl.where(there, index_of(key, HIGHEST), 0)).to(tl.int64))
        kept = tl.where(kept == key, NO_KEY, kept)


@kernel
def _answer_rows(
    numbers, winners, keys, plane, splits, filled, vocab_size, temperatures, seeds, positions, draws,
    tokens, probabilities, entropies, margins, noise, best_ids, best_probabilities,
    CHUNK: constexpr, KEPT: constexpr, BEST: constexpr, HIGHEST: constexpr, PLAIN: constexpr,
    RACED: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if filled is not None and row >= tl.load(filled):
        return
    peak, base = peak_of(numbers, row, plane, splits, CHUNK)
    temperature, inverse = 1.0, 1.0
    if RACED:
        temperature, inverse, hot = temperature_of(temperatures, row, True)
    total, moment, plain, kept = add_up(
        numbers, keys, row, base, inverse, plane, splits, CHUNK // KEPT, KEPT, entropies is not None, PLAIN
    )  # fmt: skip
    broken = 1 - (finite(peak) & (total < float("inf"))).to(tl.int32)
    first_key = tl.max(kept, 0)
    token, logit = index_of(first_key, HIGHEST), value_of(first_key)
    if RACED and hot:
        key = stream_of(seeds, positions, draws, row, True, PURPOSE)
        token, logit = _winner(numbers, winners, row, base, temperature, key, plane, splits, CHUNK, HIGHEST)
    measured, scale = total, inverse
    if PLAIN:
        measured, scale = plain, 1.0
    chosen = tl.exp(tl.maximum((logit - base) * scale, LEAST)) / measured
    tl.store(tokens + row, tl.where(broken > 0, -1, token).to(tl.int64))
    tl.store(probabilities + row, tl.where(broken > 0, 0.0, chosen))
    if entropies is not None:
        tl.store(entropies + row, tl.where(broken > 0, 0.0, tl.maximum(tl.log(measured) - moment / measured, 0.0)))
    if margins is not None:
        second = value_of(tl.max(tl.where(kept == first_key, NO_KEY, kept), 0))
        gap = 1.0 - tl.exp(tl.maximum((second - base) * inverse, LEAST))
        tl.store(margins + row, tl.where(broken > 0, 0.0, gap / total))
    if noise is not None:
        other = stream_of(seeds, positions, draws, row, True, OTHER_PURPOSE)
        tl.store(noise + row, random_id(other, vocab_size))
    if best_ids is not None:
        _list_best(kept, base, scale, measured, broken, best_ids, best_probabilities, row, BEST, HIGHEST)


def answer(
    parts: Parts,
    settings: Settings,
    sampler: SamplerConfig,
    *,
    vocab_size: int,
    plain: bool,
    filled: Int64[Tensor, "1"] | None = None,
) -> Drawn:
    """Return one result per row from its parts; `plain`: parts have sums at temperature 1, too.

    Rows from `filled` on are skipped (None: none).
    """
    _, rows, splits = parts.numbers.shape
    device, best = parts.numbers.device, sampler.best

    def empty(requested: object, *columns: int, dtype: torch.dtype = torch.float32) -> Tensor | None:
        return torch.empty((rows, *columns), dtype=dtype, device=device) if requested else None

    statistics = sampler.statistics
    drawn = Drawn(
        tokens=torch.empty(rows, dtype=torch.int64, device=device),
        probabilities=torch.empty(rows, dtype=torch.float32, device=device),
        entropies=empty("entropy" in statistics),
        margins=empty("margin" in statistics),
        noise=empty("noise" in statistics, dtype=torch.int64),
        best_ids=empty(best, best, dtype=torch.int64),
        best_probabilities=empty(best, best),
    )
    if not rows:
        return drawn
    assert settings.noise is not None or "noise" not in statistics, "random ids need the counters of each row"
    kept = parts.keys.shape[2]
    chosen = parameters("answer_rows", architecture(device))
    _answer_rows[(rows,)](
        parts.numbers, parts.winners, parts.keys, rows * splits, splits, filled, vocab_size, settings.temperatures,
        *counters_of(settings), drawn.tokens, drawn.probabilities, drawn.entropies, drawn.margins, drawn.noise,
        drawn.best_ids, drawn.best_probabilities,
        CHUNK=max(kept, min(chosen["chunk"], power_of_two(splits * kept))), KEPT=kept, BEST=best,
        HIGHEST=sampler.ties == "highest", PLAIN=plain, RACED=settings.temperatures is not None,
        **compiled_with(chosen),
    )  # fmt: skip
    return drawn
