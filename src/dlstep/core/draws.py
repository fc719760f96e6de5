"""Counter-based random numbers: a function of what is drawn for, so that nothing depends on order or batch mates.

The generator is splitmix64 (Steele, Lea and Flood 2014) used as a hash of its counters. Drivers compute the same numbers
on the device; this file defines them.
"""

from typing import Literal

Purpose = Literal["sample", "renoise", "open"]
PURPOSES: dict[Purpose, int] = {"sample": 0, "renoise": 1, "open": 2}

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


def uniform(draw_key: int, index: int) -> float:
    """Number `index` of the stream of `draw_key`: an odd multiple of 2**-24 in (0, 1), exact in float32."""
    return ((mix(draw_key ^ mix(index)) >> 41) + 0.5) * 2.0**-23


def integer(draw_key: int, index: int, bound: int) -> int:
    """Number `index` of the stream of `draw_key` as an integer in [0, bound); `bound` is at most 2**31."""
    return ((mix(draw_key ^ mix(index)) >> 33) * bound) >> 31
