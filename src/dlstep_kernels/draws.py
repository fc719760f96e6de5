"""Counter-based random numbers in wrapping 64-bit integers: Philox for token ids, otherwise splitmix64.

Each number depends only on its counters. The core and the kernels produce the same bits.
"""

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from .choice import with_kernel

Integers = Int64[Tensor, "..."]
RowInts = Int64[Tensor, " n"]  # one number for each row
SAMPLE, RENOISE = 0, 1  # values of the counter that separates streams by purpose

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # the constants of splitmix64 as signed integers
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
_WORD = (1 << 32) - 1

PHILOX_MULTIPLIER, PHILOX_INCREMENT, PHILOX_ROUNDS = 0xD256D193, 0x9E3779B9, 10


def _shifted(value: Integers, count: int) -> Integers:
    """Shift `value` right as an unsigned 64-bit integer; torch only has the signed shift."""
    return (value >> count) & ((1 << (64 - count)) - 1)


def mix(value: Integers) -> Integers:
    """Return the splitmix64 step of each element: a bijection of 64-bit integers.

    Args:
        value: 64-bit integers, read as signed.
    """
    value = value + _GOLDEN
    value = (value ^ _shifted(value, 30)) * _FIRST
    value = (value ^ _shifted(value, 27)) * _SECOND
    return value ^ _shifted(value, 31)


def draw_keys(seeds: RowInts, positions: RowInts, draws: RowInts, *, purpose: int = SAMPLE) -> RowInts:
    """Return the key of each row's stream of random numbers.

    Args:
        seeds: Seed of each row: 64 bits, read as a signed integer.
        positions: Position of each row.
        draws: Draw number of each row.
        purpose: Counter that separates streams by purpose: SAMPLE or RENOISE.
    """
    return mix(mix(mix(mix(seeds) ^ positions) ^ draws) ^ purpose)


@with_kernel("draws")
def uniform(keys: RowInts, *, count: int, first: int = 0) -> Float32[Tensor, "n count"]:
    """Return the number of each token id in each stream, computed by Philox: an odd multiple of 2**-24 in (0, 1).

    Args:
        keys: Key of each stream.
        count: Number of token ids.
        first: The first token id.
    """
    counters = torch.arange(first >> 1, (first + count + 1) >> 1, device=keys.device)
    words = torch.stack(philox(counters, _shifted(keys, 32)[:, None], keys[:, None] & _WORD), -1).flatten(1)
    bits = words[:, first & 1 :][:, :count] >> 9
    return (bits.to(torch.float32) + 0.5) * 2.0**-23


def philox(one: Integers, two: Integers, key: Integers) -> tuple[Integers, Integers]:
    """Return the two words of Philox2x32-10 (`dlstep.core.draws.philox`) for each counter and key.

    Args:
        one: First word of each counter, an unsigned 32-bit integer.
        two: Second word of each counter.
        key: Key of each counter, an unsigned 32-bit integer.
    """
    for _ in range(PHILOX_ROUNDS):
        product = one * PHILOX_MULTIPLIER
        # Only the low 32 bits of `key` and `two` affect the result.
        one, two = ((product >> 32) ^ key).bitwise_xor_(two).bitwise_and_(_WORD), product
        key = key + PHILOX_INCREMENT
    return one, two & _WORD


def integers(keys: RowInts, bound: int) -> RowInts:
    """Return the single number of each stream, computed by splitmix64, as an integer in [0, bound).

    Args:
        keys: Key of each stream.
        bound: Exclusive upper bound, at most 2**31.
    """
    zero = mix(torch.zeros((), dtype=torch.int64, device=keys.device))
    return (_shifted(mix(keys ^ zero), 33) * bound) >> 31
