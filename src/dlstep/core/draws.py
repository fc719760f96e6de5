"""Counter-based random numbers: pure functions of seed, position, draw number and purpose.

A draw therefore never depends on the order of calls or on other requests. Drivers compute the same
numbers on the device. splitmix64 (Steele, Lea and Flood 2014) hashes these four counters into the key
of a stream. A stream with the purpose "sample" has one number per token id, computed by Philox, which
needs fewer instructions on a device. Every other stream has a single number, computed by splitmix64,
which is faster in Python.
"""

from array import array
from functools import lru_cache
from itertools import compress
from math import ceil
from typing import Literal

Purpose = Literal["sample", "renoise", "open", "choose", "remask"]
PURPOSES: dict[Purpose, int] = {"sample": 0, "renoise": 1, "open": 2, "choose": 3, "remask": 4}

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """Apply the splitmix64 step, a bijection of 64-bit integers."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def key(seed: int, position: int, draw: int, purpose: Purpose) -> int:
    """Return the 64-bit key of a draw. `draw` is the number of earlier passes that sampled the block."""
    value = mix(seed & _MASK)
    for counter in (position, draw, PURPOSES[purpose]):
        value = mix(value ^ counter)
    return value


def philox(one: int, two: int, philox_key: int) -> tuple[int, int]:
    """Return the two words that Philox2x32-10 computes from a counter of two words.

    Words and key are unsigned 32-bit integers. Source: Salmon, Moraes, Dror and Shaw, "Parallel
    random numbers: as easy as 1, 2, 3", 2011. Seven rounds pass BigCrush; ten are the authors'
    default. In tensor core results, each thread has pairs of columns, so the two words per counter
    fit better than the four of Philox4x32, at the same cost per word.
    """
    for _ in range(10):
        product = one * 0xD256D193
        one, two = (product >> 32) ^ philox_key ^ two, product & 0xFFFFFFFF
        philox_key = (philox_key + 0x9E3779B9) & 0xFFFFFFFF
    return one, two


def token_uniform(draw_key: int, token: int) -> float:
    """Return the number of a token id in a "sample" stream: an odd multiple of 2**-24 in (0, 1)."""
    word = philox(token >> 1, draw_key >> 32, draw_key & 0xFFFFFFFF)[token & 1]
    return ((word >> 9) + 0.5) * 2.0**-23


def integer(draw_key: int, bound: int) -> int:
    """Return the single number of a stream as an integer in [0, bound); `bound` is at most 2**31."""
    return ((mix(draw_key ^ mix(0)) >> 33) * bound) >> 31


@lru_cache(maxsize=8192)
def below(seed: int, start: int, stop: int, draw: int, purpose: Purpose, chance: float) -> tuple[int, ...]:
    """Return the positions in `[start, stop)`, ascending, whose `(integer(key, 2**23) + 0.5) / 2**23` is below `chance`."""
    bound = max(0, min(1 << 23, ceil(chance * (1 << 23) - 0.5)))  # `chance` as a bound on the 23-bit integers
    ones, _, _, kept, _ = _lanes(stop - start)
    values = (_placed(seed, start, stop, draw, purpose) >> 33) & kept
    # Adding this constant sets bit 32 of a lane unless the lane's value is below the bound.
    hits = ((values + ones * ((1 << 32) - (bound << 8))) >> 32) & ones ^ ones
    if not hits:
        return ()
    return tuple(compress(range(start, stop), hits.to_bytes(16 * (stop - start), "little")[::16]))


def integers(seed: int, start: int, stop: int, draw: int, purpose: Purpose, bound: int) -> tuple[int, ...]:
    """Return `integer(key(seed, position, draw, purpose), bound)` for each position in `[start, stop)`.

    One big integer computes all positions at once, with a lane of 64 bits and 64 carry bits for each: 8 us for
    32 positions, where a call for each takes 350 us.
    """
    _, mask, _, kept, _ = _lanes(stop - start)
    values = ((((_placed(seed, start, stop, draw, purpose) >> 33) & kept) * bound) >> 31) & mask
    return tuple(array("Q", values.to_bytes(16 * (stop - start), "little"))[::2])


@lru_cache(maxsize=64)
def _lanes(count: int) -> tuple[int, int, int, int, int]:
    """Return integers whose `count` lanes hold 1, 64 set bits, the increment of `mix`, 31 set bits, and `mix(0)`."""
    ones = int.from_bytes(array("Q", (1, 0) * count).tobytes(), "little")
    return ones, ones * _MASK, ones * 0x9E3779B97F4A7C15, ones * 0x7FFFFFFF, ones * mix(0)


def _placed(seed: int, start: int, stop: int, draw: int, purpose: Purpose) -> int:
    """Return the 64 bits from which `below` and `integer` are computed, one lane per position.

    The upper halves of the lanes contain leftover bits.
    """
    ones, mask, add, _, first = _lanes(stop - start)
    values = _mixed(_of_positions(seed, start, stop) ^ (ones * draw), mask, add) ^ (ones * PURPOSES[purpose])
    return _mixed(_mixed(values, mask, add) ^ first, mask, add)


@lru_cache(maxsize=2048)
def _of_positions(seed: int, start: int, stop: int) -> int:
    """Hash seed and position in each lane; cached, because the passes over a block share it."""
    ones, mask, add, _, _ = _lanes(stop - start)
    lanes = array("Q", bytes(16 * (stop - start)))
    lanes[::2] = array("Q", range(start, stop))
    return _mixed(int.from_bytes(lanes.tobytes(), "little") ^ (ones * mix(seed & _MASK)), mask, add)


def _mixed(values: int, mask: int, add: int) -> int:
    """Apply `mix` to the lower halves of lanes (`_lanes`); the upper halves contain leftover bits."""
    # The addition may carry into the lowest bit of the upper half, which is 0.
    values = (values + add) & mask
    values = ((values ^ ((values >> 30) & mask)) * 0xBF58476D1CE4E5B9) & mask
    values = ((values ^ ((values >> 27) & mask)) * 0x94D049BB133111EB) & mask
    return values ^ (values >> 31)
