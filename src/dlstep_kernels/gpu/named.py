"""Probabilities of scored ids: each program computes one id of a row from the row's parts.

Its logit is read or recomputed (with other rounding). The sampled id keeps its probability.
"""

from dataclasses import replace

import torch
import triton.language as tl
from jaxtyping import Float, Int64
from torch import Tensor
from triton.language import constexpr

from ..sampling import Drawn, Settings
from .launch import architecture, compiled_with, kernel, parameters, power_of_two
from .parts import (
    LEAST,
    Parts,
    add_up,
    finite,
    line_of,
    peak_of,
    penalties_of,
    permitted,
    table_of,
    temperature_of,
)


@kernel
def _measure_named(
    logits, row_stride, numbers, plane, splits, filled, vocab_size, mask_id, temperatures, penalty_ids, penalties,
    mask_words, mask_rows, words, tokens, drawn, named, probabilities,
    CHUNK: constexpr, PLAIN: constexpr, RACED: constexpr, WHOLE: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if filled is not None and row >= tl.load(filled):
        return
    peak, base = peak_of(numbers, row, plane, splits, CHUNK)
    inverse = 1.0
    if RACED:
        _, inverse, _ = temperature_of(temperatures, row, True)
    total, _, plain, _ = add_up(numbers, None, row, base, inverse, plane, splits, CHUNK, 1, False, PLAIN)
    broken = ~(finite(peak) & (total < float("inf")))
    measured, scale = total, inverse
    if PLAIN:
        measured, scale = plain, 1.0
    at = row * tl.num_programs(1) + tl.program_id(1)
    token = tl.load(named + at)
    there = (token >= 0) & (token < vocab_size) & (token != mask_id)
    if mask_words is not None:
        there &= permitted(line_of(mask_words, mask_rows, words, row, True), words, tl.maximum(token, 0))
    if WHOLE:  # noqa: SIM108
        x = tl.load(logits + row * row_stride + token, mask=there, other=0.0).to(tl.float32)
    else:
        x = tl.load(logits + at)
    if penalty_ids is not None:
        x = tl.where(token == tl.load(penalty_ids + row), x - tl.load(penalties + row), x)
    # A recomputed logit may exceed the maximum by rounding.
    probability = tl.exp(tl.maximum(tl.minimum(x - base, 0.0) * scale, LEAST)) / measured
    probability = tl.where(token == tl.load(tokens + row), tl.load(drawn + row), probability)
    tl.store(probabilities + at, tl.where(there & ~broken, probability, 0.0))


def with_named(
    drawn: Drawn,
    parts: Parts,
    settings: Settings,
    logits: Float[Tensor, "n width"],
    *,
    vocab_size: int,
    mask_id: int | None,
    plain: bool,
    whole: bool,
    filled: Int64[Tensor, "1"] | None = None,
) -> Drawn:
    """Return `drawn` with the probabilities of the settings' `scored_ids`.

    `logits` are those of all ids if `whole`, else of the scored ids. The other arguments are those of `answer`.
    """
    ids = settings.scored_ids
    assert ids is not None, "there must be ids to score"
    _, rows, splits = parts.numbers.shape
    device = logits.device
    probabilities = torch.empty(ids.shape, dtype=torch.float32, device=device)
    chosen = parameters("measure_named", architecture(device))
    if ids.numel():
        _measure_named[tuple(ids.shape)](
            logits, logits.stride(0), parts.numbers, rows * splits, splits, filled, vocab_size,
            -1 if mask_id is None else mask_id, settings.temperatures,
            *penalties_of(settings), *table_of(settings),
            drawn.tokens, drawn.probabilities, ids.contiguous(), probabilities,
            CHUNK=min(chosen["chunk"], power_of_two(splits)), PLAIN=plain, RACED=settings.temperatures is not None,
            WHOLE=whole, **compiled_with(chosen),
        )  # fmt: skip
    return replace(drawn, scored_probabilities=probabilities)
