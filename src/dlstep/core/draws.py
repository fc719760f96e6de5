"""Counter-based random numbers: a function of what is drawn for, so that nothing depends on order or batch mates.

The generator is splitmix64 (Steele, Lea and Flood 2014) used as a hash of its counters. Drivers compute the same numbers
on the device; this file defines them.
"""

from array import array
from functools import lru_cache
from hashlib import blake2b
from itertools import compress
from math import ceil
from typing import Literal

Purpose = Literal["sample", "renoise", "open", "choose", "remask"]
PURPOSES: dict[Purpose, int] = {"sample": 0, "renoise": 1, "open": 2, "choose": 3, "remask": 4}

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """The splitmix64 step: a bijection of 64-bit integers that changes half of the bits."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def key(seed: int, position: int, draw: int, purpose: Purpose) -> int:
    """64 bits for one draw; `draw` counts the earlier forwards that sampled this position's block."""
    value = mix(seed & _MASK)
    for counter in (position, draw, PURPOSES[purpose]):
        value = mix(value ^ counter)
    return value


def derived_seed(seed: int, prompt: tuple[int, ...], index: int) -> int:
    """The 64-bit seed of a request that brings none: `index` tells equal requests of one call apart.

    It depends on nothing else, so that a request is answered the same whenever it comes and whatever its options are.
    """
    numbers = array("q", (index, *prompt)).tobytes()
    return int.from_bytes(blake2b(numbers, digest_size=8, key=(seed & _MASK).to_bytes(8, "little")).digest(), "little")


def uniform(draw_key: int, index: int) -> float:
    """Number `index` of the stream of `draw_key`: an odd multiple of 2**-24 in (0, 1), exact in float32."""
    return ((mix(draw_key ^ mix(index)) >> 41) + 0.5) * 2.0**-23


def integer(draw_key: int, index: int, bound: int) -> int:
    """Number `index` of the stream of `draw_key` as an integer in [0, bound); `bound` is at most 2**31."""
    return ((mix(draw_key ^ mix(index)) >> 33) * bound) >> 31


def uniforms(seed: int, start: int, stop: int, draw: int, purpose: Purpose) -> tuple[float, ...]:
    """`uniform(key(seed, position, draw, purpose), 0)` for the positions of `[start, stop)`, all of them at once."""
    return tuple([(number + 0.5) * 2.0**-23 for number in integers(seed, start, stop, draw, purpose, 1 << 23)])


@lru_cache(maxsize=8192)
def below(seed: int, start: int, stop: int, draw: int, purpose: Purpose, chance: float) -> tuple[int, ...]:
    """The positions of `[start, stop)`, ascending, whose number of `uniforms` is below `chance`."""
    bound = max(0, min(1 << 23, ceil(chance * (1 << 23) - 0.5)))  # of the integers that the numbers are made of
    ones, _, _, kept, _ = _lanes(stop - start)
    values = (_placed(seed, start, stop, draw, purpose) >> 33) & kept
    # The sum reaches bit 32 of a lane unless its number is below.
    hits = ((values + ones * ((1 << 32) - (bound << 8))) >> 32) & ones ^ ones
    if not hits:
        return ()
    return tuple(compress(range(start, stop), hits.to_bytes(16 * (stop - start), "little")[::16]))


def integers(seed: int, start: int, stop: int, draw: int, purpose: Purpose, bound: int) -> tuple[int, ...]:
    """`integer(key(seed, position, draw, purpose), 0, bound)` for the positions of `[start, stop)`.

    All of them at once: every position has a lane of 128 bits in one large integer, whose upper half takes the carries.
    """
    _, mask, _, kept, _ = _lanes(stop - start)
    values = ((((_placed(seed, start, stop, draw, purpose) >> 33) & kept) * bound) >> 31) & mask
    return tuple(array("Q", values.to_bytes(16 * (stop - start), "little"))[::2])


@lru_cache(maxsize=64)
def _lanes(count: int) -> tuple[int, int, int, int, int]:
    """So many lanes of: one, 64 bits set, the increment of `mix`, 31 bits set, and what number 0 of a stream mixes in."""
    ones = int.from_bytes(array("Q", (1, 0) * count).tobytes(), "little")
    return ones, ones * _MASK, ones * 0x9E3779B97F4A7C15, ones * 0x7FFFFFFF, ones * mix(0)


def _placed(seed: int, start: int, stop: int, draw: int, purpose: Purpose) -> int:
    """The 64 bits that `uniform` and `integer` cut for their number 0, in a lane for each position.

    Upper halves of lanes are not empty.
    """
    ones, mask, add, _, first = _lanes(stop - start)
    values = _of_forward(seed, start, stop, draw) ^ (ones * PURPOSES[purpose])
    return _mixed(_mixed(values, mask, add) ^ first, mask, add)


@lru_cache(maxsize=2048)
def _of_forward(seed: int, start: int, stop: int, draw: int) -> int:
    """The lanes of one forward, in front of the purpose: a forward may draw for two."""
    ones, mask, add, _, _ = _lanes(stop - start)
    return _mixed(_of_positions(seed, start, stop) ^ (ones * draw), mask, add)


@lru_cache(maxsize=2048)
def _of_positions(seed: int, start: int, stop: int) -> int:
    """The lanes of the positions, in front of the forward: those that draw for whole blocks ask for the same ones again."""
    ones, mask, add, _, _ = _lanes(stop - start)
    lanes = array("Q", bytes(16 * (stop - start)))
    lanes[::2] = array("Q", range(start, stop))
    return _mixed(int.from_bytes(lanes.tobytes(), "little") ^ (ones * mix(seed & _MASK)), mask, add)


def _mixed(values: int, mask: int, add: int) -> int:
    """`mix` of the lower half of each lane; upper halves are left with bits of the next lane. See `_lanes`."""
    # An addition carries into the lowest bit of an upper half, which is 0.
    values = (values + add) & mask
    values = ((values ^ ((values >> 30) & mask)) * 0xBF58476D1CE4E5B9) & mask
    values = ((values ^ ((values >> 27) & mask)) * 0x94D049BB133111EB) & mask
    return values ^ (values >> 31)
