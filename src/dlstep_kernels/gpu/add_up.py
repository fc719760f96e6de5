"""Sum over the ranks of a group, one device each, through memory that all devices can access.

A rank stores its numbers in the others' memory (faster than loading theirs), signals that they are
there, waits for the signals of all, and sums in rank order, in fp32, rounding once. Small tensors
are sent whole, and every rank sums everything. Of large tensors each rank sums one part and sends
the sums to all, which transfers less with more than two ranks.

A program has the same blocks on all ranks and waits only for the programs of its number on other
ranks; no more programs are launched than run concurrently. Two invariants prevent overwriting:

- When a rank starts sum n, all ranks have started sum n - 1 and ended n - 2. Sums of one rank run
  in order without overlap, so its sum n - 1 is over; each of its programs then has a signal from
  every rank, which that rank sends in its sum n - 1, after its sum n - 2. So whole tensors, which
  alternate between two halves of the memory, never overwrite what a rank still reads.
- Parts need one place. What is sent before the first signal of sum n - 1 is read before the second
  one, which all ranks have received when sum n starts. Sums of parts are sent in sum n after its
  first signal, when every rank has finished sum n - 1. Parts, sums and whole tensors are separate.

A program that gives up while it waits returns, and never signals again. The programs of its number
on other ranks wait until they give up too, so a stale number is never mistaken for a result.
"""

# In kernels, `tl.static_range` is iterable, and a `constexpr` is a number.
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportArgumentType=false

import torch
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from ..commons import MOST, Commons, parts_bytes, whole_bytes
from .launch import architecture, compiled_with, divided_up, kernel, parameters

# Polls of a signal before one poll of the word to give up, of which one in TURNS reads host memory.
PATIENCE = constexpr(256)
TURNS = constexpr(64)
OVER = constexpr(1 << 40)  # larger than any number of polls


@kernel
def _tell(pads, line, count, RANK: constexpr, SIZE: constexpr):
    """Signal to all other ranks that what this program stored before is visible."""
    tl.debug_barrier()  # wait for the stores of all threads, since one thread signals
    for other in tl.static_range(SIZE):
        if other != RANK:
            tl.atomic_xchg(pads[other] + line * SIZE + RANK, count, sem="release", scope="sys")


@kernel
def _await(pads, line, count, looked, gone, RANK: constexpr, SIZE: constexpr, BLOCK: constexpr):
    """Wait for the signals of all other ranks; return whether the wait was given up.

    Each poll is an atomic operation by one thread, broadcast to the others: with plain loads,
    threads could see different values and diverge. Only one thread of one program at a time reads
    the host's word: such reads queue up for a microsecond each, and a late rank delays all others.
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


@kernel
def _send(rooms, offset, part, at, numbers, RANK: constexpr, SIZE: constexpr):
    """Store numbers in the rooms of all other ranks, in this rank's place there."""
    for other in tl.static_range(SIZE):
        if other != RANK:
            room = rooms[other].to(tl.pointer_type(numbers.dtype)) + offset
            tl.store(room + (RANK - (other < RANK)) * part + at, numbers, mask=at < part)


@kernel
def _sum(source, room, part, at, RANK: constexpr, SIZE: constexpr):
    """Return the sum of local and received numbers, bypassing L1, which may hold stale values."""
    total = tl.zeros(at.shape, tl.float32)
    for other in tl.static_range(SIZE):
        if other == RANK:
            numbers = tl.load(source + at, mask=at < part)
        else:
            numbers = tl.load(room + (other - (other > RANK)) * part + at, mask=at < part, cache_modifier=".cg")
        if other == 0:  # start from the number, not from 0: -0 + -0 is -0
            total = numbers.to(tl.float32)
        else:
            total += numbers.to(tl.float32)
    return total.to(source.dtype.element_ty)


@kernel
def _end(counts, count, alone, MOST: constexpr):
    """Store the new count, also for programs that this sum did not need; -1 after giving up."""
    every = tl.arange(0, MOST)
    mine = every % tl.num_programs(0) == tl.program_id(0)
    tl.store(counts + every, tl.where(alone, -1, count), mask=mine)


@kernel
def _add_whole(
    source, target, rooms, pads, counts, gone, part, offset, half,
    RANK: constexpr, SIZE: constexpr, BLOCK: constexpr, MOST: constexpr,
):  # fmt: skip
    """Sum small tensors: every rank sends its whole tensor and sums all; `part` is the size."""
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


@kernel
def _add_parts(
    source, target, rooms, pads, counts, gone, part,
    RANK: constexpr, SIZE: constexpr, BLOCK: constexpr, MOST: constexpr,
):  # fmt: skip
    """Sum large tensors: send each rank its part, sum the own part, and send that sum to all."""
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
    """Return the sum over all ranks of a contiguous tensor that `suits` accepts, bitwise equal.

    All ranks call this in the same order, each on one stream. Undefined after giving up.
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
