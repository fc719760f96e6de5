"""Counter-based random numbers inside kernels, bitwise equal to those of `draws`, and order keys.

An order key packs a logit and its id into one integer that sorts by logit, then by id.
"""

# In kernels, `tl.static_range` is iterable, and a `constexpr` is a number.
# pyright: reportGeneralTypeIssues=false

import torch
import triton.language as tl
from jaxtyping import Float32, Int64
from torch import Tensor
from triton.language import constexpr

from ..draws import PHILOX_INCREMENT, PHILOX_MULTIPLIER, PHILOX_ROUNDS
from .launch import architecture, compiled_with, divided_up, kernel, parameters

MULTIPLIER, INCREMENT = constexpr(PHILOX_MULTIPLIER), constexpr(PHILOX_INCREMENT)
ROUNDS = constexpr(PHILOX_ROUNDS)
NO_KEY = constexpr(-(1 << 63))  # less than the key of any finite logit


@kernel
def mix(value):
    """Return the splitmix64 step of unsigned 64-bit integers."""
    value = value + 0x9E3779B97F4A7C15
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB
    return value ^ (value >> 31)


@kernel
def draw_key(seed, position, draw, PURPOSE: constexpr):
    """Return the key of a stream of random numbers. `seed`, `position` and `draw` are signed 64-bit integers."""
    value = mix(seed.to(tl.uint64, bitcast=True))
    value = mix(value ^ position.to(tl.uint64, bitcast=True))
    value = mix(value ^ draw.to(tl.uint64, bitcast=True))
    return mix(value ^ PURPOSE)


@kernel
def _words(key, counter):
    """Return the two words of Philox block `counter` (a 32-bit integer) of a stream."""
    low, one, two = key.to(tl.uint32), counter.to(tl.uint32), (key >> 32).to(tl.uint32)
    for _ in tl.static_range(ROUNDS):
        product = one.to(tl.uint64) * MULTIPLIER  # one instruction; `tl.umulhi` and a 32-bit product are two
        one, two = (product >> 32).to(tl.uint32) ^ low ^ two, product.to(tl.uint32)
        low += INCREMENT
    return one, two


@kernel
def _complement_of(word):
    """Return 1 minus the uniform number of a word; exact, because both are odd multiples of 2**-24."""
    return (((word >> 9) ^ 0x3FFFFFFF).to(tl.float32, bitcast=True) - 1.0) + 5.9604644775390625e-08


@kernel
def complement(key, first, place):
    """Return 1 minus the uniform number at index `first + place` of a stream; `first` is even.

    If a thread needs both numbers of a Philox block, the compiler can compute the block only once.
    """
    one, two = _words(key, (first >> 1) + (place >> 1))
    return _complement_of(tl.where((place & 1) > 0, two, one))


@kernel
def complements(key, first, COUNT: constexpr, GROUP: constexpr):
    """Return 1 minus each of `COUNT` uniform numbers of a stream, from the even index `first` on.

    Each thread gets `GROUP` (4 or 8) consecutive numbers, one for each logit of a 16-byte load.
    Joining the words of every `GROUP // 2`-th Philox block gives this layout; the compiler would
    have to convert any other layout through shared memory.
    """
    counter = (first >> 1) + tl.arange(0, COUNT // GROUP) * (GROUP // 2)
    one, two = _words(key, counter)
    three, four = _words(key, counter + 1)
    if GROUP == 8:
        five, six = _words(key, counter + 2)
        seven, eight = _words(key, counter + 3)
        one, two, three, four = tl.join(one, five), tl.join(two, six), tl.join(three, seven), tl.join(four, eight)
    words = tl.join(tl.join(one, three), tl.join(two, four))
    return _complement_of(tl.reshape(words, (COUNT,)))


@kernel(do_not_specialize=("first", "count"))
def _store_uniform(keys, numbers, first, count, BLOCK: constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + row).to(tl.uint64, bitcast=True)
    values = 1.0 - complement(key, first & -2, (first & 1) + place)
    tl.store(numbers + row * count + place, values, mask=place < count)


def uniform(keys: Int64[Tensor, " n"], *, count: int, first: int = 0) -> Float32[Tensor, "n count"]:
    """Return the twin's numbers, bit for bit."""
    numbers = torch.empty((len(keys), count), dtype=torch.float32, device=keys.device)
    launch = parameters("store_uniform", architecture(keys.device))
    if numbers.numel():
        grid = (len(keys), divided_up(count, launch["block"]))
        _store_uniform[grid](keys, numbers, first, count, BLOCK=launch["block"], **compiled_with(launch))
    return numbers


@kernel
def gumbel(remainder):
    """Return Gumbel noise from 1 minus a uniform number."""
    return -tl.log(-tl.log(1.0 - remainder))


@kernel
def random_id(key, bound):
    """Return the single number of the stream of `key` as an integer in [0, bound)."""
    bits = mix(key ^ mix(tl.zeros([], tl.uint64))) >> 33
    return ((bits * tl.full([], bound, tl.uint64)) >> 31).to(tl.int64)


@kernel
def order_key(value, index, HIGHEST: constexpr):
    """Return an integer that sorts finite values and breaks ties by index; NO_KEY for other values."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    low = index.to(tl.int32)
    if not HIGHEST:
        low = 0x7FFFFFFF - low
    key = (ordered.to(tl.int64) << 32) | low.to(tl.int64)
    return tl.where((value > float("-inf")) & (value < float("inf")), key, NO_KEY)


@kernel
def value_of(key):
    """Return the value in an order key; -inf for an empty key."""
    ordered = (key >> 32).to(tl.int32)
    value = (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    return tl.where(ordered < -2139095040, float("-inf"), value)


@kernel
def index_of(key, HIGHEST: constexpr):
    """Return the index in an order key."""
    low = (key & 0x7FFFFFFF).to(tl.int32)
    if not HIGHEST:
        low = 0x7FFFFFFF - low
    return low


@kernel
def no_keys(COUNT: constexpr):
    """Return `COUNT` empty keys, which are distinct so that `keep_largest` replaces one at a time."""
    return tl.arange(0, COUNT).to(tl.int64) + (NO_KEY + 1)


@kernel
def keep_largest(kept, keys):
    """Return the largest of `kept` and `keys`, all distinct. Costs one check, plus one per inserted key."""
    top = tl.max(keys, 0)
    least = tl.min(kept, 0)
    while top > least:
        kept = tl.where(kept == least, top, kept)
        keys = tl.where(keys == top, NO_KEY, keys)
        top = tl.max(keys, 0)
        least = tl.min(kept, 0)
    return kept
