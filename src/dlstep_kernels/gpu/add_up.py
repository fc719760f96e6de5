"""Sums over the ranks of a group, each on a device of its own, through memory that all of them reach.

A rank puts its numbers into the others' memory, which costs less than to fetch theirs, tells that they are there, waits
until it is told so by all, and adds up in the order of ranks, in fp32, rounding once. Small tensors go whole: every rank adds
up everything. Of large ones each rank adds up one part, and sends the sum round: more ranks than two then send less.

A program has the same blocks on all ranks, and waits for nobody but the programs of its own number; no more are launched than
run at a time. Two things are sure:

- When a rank has come to sum n, every rank has begun sum n - 1, and ended n - 2. Sums of one rank follow one another on the
  device (launched without overlap), so its sum n - 1 is over; each of its programs then was told something by every rank,
  which a rank does within its own sum n - 1, after its sum n - 2. So whole tensors, which lie in two halves of the memory in
  turns, never meet what a rank still reads.
- Parts need one place only. What was sent before the first signal of sum n - 1 is read before the second one, and all have
  the second one of all when sum n begins; sums of parts are sent in sum n after the first signal of it, before which every
  rank has ended sum n - 1. Parts, sums of parts and whole tensors have places apart.

A program that is told to give up while it waits leaves, and tells the others nothing, now or later. Their programs of its
number wait for it until they are told as well: nobody takes its numbers for a sum.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..commons import MOST, Commons, parts_bytes, whole_bytes
from .launch import architecture, compiled_with, divided_up, parameters

PATIENCE = tl.constexpr(256)  # looks at a signal before a look at the word to give up, of which one in TURNS goes to the host
TURNS = tl.constexpr(64)
OVER = tl.constexpr(1 << 40)  # what the count of looks cannot come to


@triton.jit
@no_type_check
def _tell(pads, line, count, RANK: tl.constexpr, SIZE: tl.constexpr):
    """Signal to all that what this program wrote before is there."""
    tl.debug_barrier()  # one thread signals, for the stores of all
    for other in tl.static_range(SIZE):
        if other != RANK:
            tl.atomic_xchg(pads[other] + line * SIZE + RANK, count, sem="release", scope="sys")


@triton.jit
@no_type_check
def _await(pads, line, count, looked, gone, RANK: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Wait for the signals of all; whether this was given up.

    Every look is an atomic operation, which one thread makes and tells the others: of two plain loads one could see another
    value, and the threads would part. The host's word is fetched by one thread of one program at a time: fetches of it queue
    up, a microsecond each, and whoever is late keeps the other ranks waiting, who then fetch it as well.
    """
    alone = False
    for other in tl.static_range(SIZE):
        if other != RANK:
            signal = pads[RANK] + line * SIZE + other
            seen = tl.atomic_add(signal, 0, sem="acquire", scope="sys")
            looks = 0
            while (seen < count) & (not alone):
                looks += 1
                if looks % PATIENCE == 0:
                    turn = tl.atomic_add(looked, 1, sem="relaxed", scope="gpu")
                    alone = turn >= OVER
                    if turn % TURNS == 0:
                        lane = tl.arange(0, BLOCK)
                        word = tl.load(gone + lane, mask=lane == 0, other=0, volatile=True)
                        if tl.max(word, 0) != 0:
                            tl.atomic_add(looked, OVER, sem="relaxed", scope="gpu")
                seen = tl.atomic_add(signal, 0, sem="acquire", scope="sys")
    return alone


@triton.jit
@no_type_check
def _send(rooms, offset, part, at, numbers, RANK: tl.constexpr, SIZE: tl.constexpr):
    """Store numbers in the rooms of all others, who have those of all their others one behind the other there."""
    for other in tl.static_range(SIZE):
        if other != RANK:
            room = rooms[other].to(tl.pointer_type(numbers.dtype)) + offset
            tl.store(room + (RANK - (other < RANK)) * part + at, numbers, mask=at < part)


@triton.jit
@no_type_check
def _sum(source, room, part, at, RANK: tl.constexpr, SIZE: tl.constexpr):
    """The sum of what is there and of what the others sent, which the nearest cache may know as it was before."""
    total = tl.zeros(at.shape, tl.float32)
    for other in tl.static_range(SIZE):
        if other == RANK:
            numbers = tl.load(source + at, mask=at < part)
        else:
            numbers = tl.load(room + (other - (other > RANK)) * part + at, mask=at < part, cache_modifier=".cg")
        if other == 0:  # a sum of -0 and -0 is not 0
            total = numbers.to(tl.float32)
        else:
            total += numbers.to(tl.float32)
    return total.to(source.dtype.element_ty)


@triton.jit
@no_type_check
def _end(counts, count, alone, MOST: tl.constexpr):
    """Count a sum for all programs that are of no sum of so few, so that all counts are the same; one that gave up has none."""
    every = tl.arange(0, MOST)
    mine = every % tl.num_programs(0) == tl.program_id(0)
    tl.store(counts + every, tl.where(alone, -1, count), mask=mine)


@triton.jit
@no_type_check
def _add_whole(
    source, target, rooms, pads, counts, gone, part, offset, half,
    RANK: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """Every rank sends all that it has, and adds up all; `part` is the whole."""
    program, step = tl.program_id(0), tl.num_programs(0) * BLOCK
    count = tl.load(counts + program) + 1
    if count <= 0:
        return
    offset += count % 2 * half
    for start in range(program * BLOCK, part, step):
        at = start + tl.arange(0, BLOCK)
        _send(rooms, offset, part, at, tl.load(source + at, mask=at < part), RANK, SIZE)
    _tell(pads, program, count, RANK, SIZE)
    alone = _await(pads, program, count, counts + MOST, gone, RANK, SIZE, BLOCK)
    if not alone:
        room = rooms[RANK].to(tl.pointer_type(source.dtype.element_ty)) + offset
        for start in range(program * BLOCK, part, step):
            at = start + tl.arange(0, BLOCK)
            tl.store(target + at, _sum(source, room, part, at, RANK, SIZE), mask=at < part)
    _end(counts, count, alone, MOST)


@triton.jit
@no_type_check
def _add_parts(
    source, target, rooms, pads, counts, gone, part,
    RANK: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """Every rank sends each other the part that is its to add up, and then sums of its own part to all."""
    program, step = tl.program_id(0), tl.num_programs(0) * BLOCK
    count = tl.load(counts + program) + 1
    if count <= 0:
        return
    kind: tl.constexpr = source.dtype.element_ty
    for other in tl.static_range(SIZE):
        if other != RANK:
            room = rooms[other].to(tl.pointer_type(kind)) + (RANK - (other < RANK)) * part
            for start in range(program * BLOCK, part, step):
                at = start + tl.arange(0, BLOCK)
                tl.store(room + at, tl.load(source + other * part + at, mask=at < part), mask=at < part)
    _tell(pads, program, count, RANK, SIZE)
    alone = _await(pads, program, count, counts + MOST, gone, RANK, SIZE, BLOCK)
    if not alone:
        room = rooms[RANK].to(tl.pointer_type(kind))
        for start in range(program * BLOCK, part, step):
            at = start + tl.arange(0, BLOCK)
            total = _sum(source + RANK * part, room, part, at, RANK, SIZE)
            tl.store(target + RANK * part + at, total, mask=at < part)
            _send(rooms, (SIZE - 1) * part, part, at, total, RANK, SIZE)
        _tell(pads, MOST + program, count, RANK, SIZE)
        alone = _await(pads, MOST + program, count, counts + MOST, gone, RANK, SIZE, BLOCK)
        if not alone:
            for other in tl.static_range(SIZE):
                if other != RANK:
                    sums = room + (SIZE - 1 + other - (other > RANK)) * part
                    for start in range(program * BLOCK, part, step):
                        at = start + tl.arange(0, BLOCK)
                        total = tl.load(sums + at, mask=at < part, cache_modifier=".cg")
                        tl.store(target + other * part + at, total, mask=at < part)
    _end(counts, count, alone, MOST)


def add_up(source: Tensor, commons: Commons) -> Tensor:
    """The sum over all ranks, the same bits on each, of what `suits` allows and is contiguous.

    All ranks call this with such tensors in one order, each rank on one stream. The answer means nothing if this was given up.
    """
    size, bytes_each = commons.size, source.itemsize
    target = torch.empty_like(source)
    whole = source.numel() * bytes_each <= whole_bytes(size)
    way, part = ("whole", source.numel()) if whole else ("parts", source.numel() // size)
    chosen = parameters("add_up", f"{architecture(source.device)}/{way}", architecture(source.device), way)
    grid = (min(chosen["programs"], commons.programs, divided_up(part * bytes_each, chosen["bytes"])),)
    shared = (source, target, commons.rooms, commons.pads, commons.counts, commons.gone, part)
    fixed = {"RANK": commons.rank, "SIZE": size, "BLOCK": chosen["bytes"] // bytes_each, "MOST": MOST}
    if whole:
        half = (size - 1) * whole_bytes(size) // bytes_each
        _add_whole[grid](*shared, parts_bytes(size) // bytes_each, half, **fixed, **compiled_with(chosen))
    else:
        _add_parts[grid](*shared, **fixed, **compiled_with(chosen))
    return target
