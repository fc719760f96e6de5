"""Attention of packed query rows to paged keys and values, tile by tile.

One program reads a range of positions for one tile's rows and all query heads of one key head. If
tiles are too few to fill the device, programs split the positions, and `_join` merges the parts.
The values of wide heads are divided between programs, which compute the same weights.
"""

# In kernels, `tl.static_range` is iterable, and a `constexpr` is a number.
# pyright: reportGeneralTypeIssues=false

from functools import cache

import torch
import triton.language as tl
from jaxtyping import Float, Int32, Int64
from torch import Tensor
from triton.language import constexpr
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ..attention import Pages
from ..tiles import Tiles, TileShape
from .launch import Parameters, architecture, compiled_with, divided_up, kernel, parameters, power_of_two

LOG2_E = 1.4426950408889634
MIN_PART = 256  # minimum positions per program, unless the launch parameters say otherwise
MAX_PARTS = 32
SLICE = 64  # (row, head) pairs of a slice if tiles are few
MOST_PAGES = 8  # of a tile of positions, if they are looked up one by one
AT_ONCE = 4  # parts that `_join` reads at once
WAVES = 8  # programs per multiprocessor above which two at a time are faster: products overlap with exponentials
SHORT = 1024  # maximum positions of a short context: too few per program to hide its launch time
# Slices of one array, whose alignment differs between forward passes.
NUMBERS = ["first_rows", "counts", "spans", "begins", "ends", "clear", "tables", "until", "since"]


@kernel
def _pages(table, first, offset, end, PAGE_SIZE: constexpr, BLOCK_N: constexpr, EVEN: constexpr):
    """Return the page of each of the positions `first + offset`; 0 past the end.

    EVEN tiles consist of whole pages or are part of one: pages are loaded as scalars, which all
    threads share. A vector of pages would be exchanged through shared memory in each iteration.
    """
    if EVEN:
        page = tl.load(table + first // PAGE_SIZE, mask=first < end, other=0)
        for number in tl.static_range(1, (BLOCK_N + PAGE_SIZE - 1) // PAGE_SIZE):
            start = first + number * PAGE_SIZE
            later = tl.load(table + start // PAGE_SIZE, mask=start < end, other=0)
            page = tl.where(offset // PAGE_SIZE == number, later, page)
    else:
        page = tl.load(table + (first + offset) // PAGE_SIZE, mask=first + offset < end, other=0)
    return page


@kernel
def _read(
    query, best, total, mean, page, position, key_base, value_base, key_slot, value_slot, dim, value_dim, start, last, end,
    scale, HEAD_DIM: constexpr, BLOCK_D: constexpr, PAGE_SIZE: constexpr, WIDE: constexpr, SAME: constexpr,
    PRECISION: constexpr, MASKED: constexpr,
):  # fmt: skip
    """Process the positions `position` on the pages `page`; all rows see them unless MASKED.

    For bf16 queries, FP8 pages are read as fp16. Read as fp16, as bf16, and with bf16 pages, 32 spans at context 4096 take
    211, 264 and 173 us on an H200, two prompts of 4096 take 959, 806 and 588.
    """
    slot = page * PAGE_SIZE + position % PAGE_SIZE
    if WIDE:
        slot = slot.to(tl.int64)
    key_place = slot[:, None] * key_slot + dim[None, :]
    value_place = key_place if SAME else slot[:, None] * value_slot + value_dim[None, :]
    held, value_held = dim[None, :] < HEAD_DIM, value_dim[None, :] < HEAD_DIM
    if MASKED:
        # Memory past the end may hold NaN, which a weight of 0 does not remove.
        held, value_held = held & (position < end)[:, None], value_held & (position < end)[:, None]
    if MASKED or HEAD_DIM < BLOCK_D:
        key = tl.load(key_base + key_place, mask=held, other=0.0)
        value = tl.load(value_base + value_place, mask=value_held, other=0.0)
    else:
        key = tl.load(key_base + key_place)
        value = tl.load(value_base + value_place)
    key, value = key.to(query.dtype), value.to(query.dtype)
    score = tl.dot(query, tl.trans(key), input_precision=PRECISION)
    if MASKED:
        seen = (position[None, :] >= start[:, None]) & (position[None, :] < last[:, None])
        score = tl.where(seen, score, float("-inf"))
    larger = tl.maximum(best, tl.max(score, 1) * scale)
    # A row that has seen nothing yet has best = -inf; use any finite pivot to avoid NaN.
    pivot = tl.where(larger == float("-inf"), 0.0, larger) if MASKED else larger
    weight = tl.exp2(score * scale - pivot[:, None])
    fade = tl.exp2(best - pivot)
    total = total * fade + tl.sum(weight, 1)
    mean = tl.dot(weight.to(value.dtype), value, mean * fade[:, None], input_precision=PRECISION)
    return larger, total, mean


@kernel
def _keep(
    outputs, means, levels, best, total, mean, row, head, dim, active, sees, output_row, output_head, mean_part, mean_row,
    mean_head, level_part, level_row, parts, HEAD_DIM: constexpr,
):  # fmt: skip
    """Store the result, or one part of it, with log2 of each row's sum of weights as `levels`.

    One function for both cases: with separate ones, the loop before compiled to slower code.
    """
    # In an unmasked loop, a row that sees nothing got weights, too.
    some = sees & (total != 0.0)
    mean = tl.where(some[:, None], mean / tl.where(some, total, 1.0)[:, None], 0.0)
    row = row.to(tl.int64)
    shown = dim[None, :] < HEAD_DIM
    if parts == 1:
        output_place = outputs + row[:, None] * output_row + head[:, None] * output_head + dim[None, :]
        tl.store(output_place, mean.to(outputs.dtype.element_ty), mask=active[:, None] & shown)
    else:
        part = tl.program_id(1).to(tl.int64)
        level = tl.where(some, best + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
        tl.store(levels + part * level_part + row * level_row + head, level, mask=active)
        mean_place = means + part * mean_part + row[:, None] * mean_row + head[:, None] * mean_head + dim[None, :]
        # A part without weight is not read.
        tl.store(mean_place, mean, mask=(active & some)[:, None] & shown)


@kernel(do_not_specialize=["level_part", "level_row", "pages", "parts"], do_not_specialize_on_alignment=NUMBERS)
def _attend(
    queries, key_pages, value_pages, outputs, means, levels, first_rows, counts, spans, begins, ends, clear, tables, until,
    since, scale, query_row, query_head, query_dim, key_slot, key_head, value_slot, value_head, output_row, output_head,
    mean_part, mean_row, mean_head, level_part, level_row, pages, parts,
    KV_HEADS: constexpr, GROUP: constexpr, HEAD_DIM: constexpr, PAGE_SIZE: constexpr, BLOCK_M: constexpr,
    BLOCK_N: constexpr, BLOCK_D: constexpr, SHARES: constexpr, SLICES: constexpr, EVEN: constexpr,
    PRECISION: constexpr, WIDE: constexpr, SAME: constexpr, TAIL: constexpr, EARLY: constexpr,
):  # fmt: skip
    """Attend from one slice of a tile, for one key head and share of its values, to one part of the positions."""
    if EARLY:
        gdc_launch_dependents()
    # Neighbouring programs read the same positions: heads are adjacent, and slices share reads.
    kv_head, piece = tl.program_id(0) % KV_HEADS, tl.program_id(0) // KV_HEADS
    share, piece = piece % SHARES, piece // SHARES
    # Tiles run last to first: the last rows of a span see the most positions, and no long program should end alone.
    tile, first_place = tl.num_programs(0) // (KV_HEADS * SHARES * SLICES) - 1 - piece // SLICES, piece % SLICES * BLOCK_M
    count = tl.load(counts + tile)
    if first_place // GROUP >= count:  # a slice past its tile's rows, or a padding tile
        return
    begin, end = tl.load(begins + tile), tl.load(ends + tile)
    table = tables + tl.load(spans + tile).to(tl.int64) * pages
    if EVEN:  # not before the first page that a row sees
        begin = begin // min(BLOCK_N, PAGE_SIZE) * min(BLOCK_N, PAGE_SIZE)
    size = tl.cdiv(tl.cdiv(end - begin, BLOCK_N), parts) * BLOCK_N
    begin += tl.program_id(1) * size
    end = tl.minimum(begin + size, end)
    offset = tl.arange(0, BLOCK_N)
    page = _pages(table, begin, offset, end, PAGE_SIZE, BLOCK_N, EVEN)
    place, dim = first_place + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    value_dim = share * (BLOCK_D // SHARES) + tl.arange(0, BLOCK_D // SHARES)
    active = place // GROUP < count
    row, head = tl.load(first_rows + tile) + place // GROUP, kv_head * GROUP + place % GROUP
    query_place = queries + row.to(tl.int64)[:, None] * query_row + head[:, None] * query_head + dim[None, :] * query_dim
    query = tl.load(query_place, mask=active[:, None] & (dim[None, :] < HEAD_DIM), other=0.0)
    query = query.to(tl.float16 if key_pages.dtype.element_ty.is_fp8() and query.dtype == tl.bfloat16 else query.dtype)
    last = tl.load(until + row, mask=active, other=0)
    start = tl.zeros_like(last) if since is None else tl.load(since + row, mask=active, other=0)
    key_base, value_base = key_pages + kv_head * key_head, value_pages + kv_head * value_head
    best = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total, mean = tl.zeros([BLOCK_M], tl.float32), tl.zeros([BLOCK_M, BLOCK_D // SHARES], tl.float32)
    middle = begin
    # Pages are looked up one iteration ahead, so that addresses are known when loads are issued.
    if since is None:
        middle += tl.maximum(tl.minimum(tl.load(clear + tile), end) - begin, 0) // BLOCK_N * BLOCK_N
        for first in tl.range(begin, middle, BLOCK_N):
            next_page = _pages(table, first + BLOCK_N, offset, end, PAGE_SIZE, BLOCK_N, EVEN)
            best, total, mean = _read(
                query, best, total, mean, page, first + offset, key_base, value_base, key_slot, value_slot, dim, value_dim,
                start, last, end, scale, HEAD_DIM, BLOCK_D, PAGE_SIZE, WIDE, SAME, PRECISION, False)  # fmt: skip
            page = next_page
    for first in tl.range(middle, end, BLOCK_N, num_stages=TAIL):
        next_page = _pages(table, first + BLOCK_N, offset, end, PAGE_SIZE, BLOCK_N, EVEN)
        best, total, mean = _read(
            query, best, total, mean, page, first + offset, key_base, value_base, key_slot, value_slot, dim, value_dim,
            start, last, end, scale, HEAD_DIM, BLOCK_D, PAGE_SIZE, WIDE, SAME, PRECISION, True)  # fmt: skip
        page = next_page
    _keep(
        outputs, means, levels, best, total, mean, row, head, value_dim, active, start < last, output_row, output_head,
        mean_part, mean_row, mean_head, level_part, level_row, parts, HEAD_DIM,
    )  # fmt: skip


@kernel(do_not_specialize=["pairs", "parts"])
def _join(
    means, levels, outputs, pairs, parts,
    HEAD_DIM: constexpr, BLOCK: constexpr, BLOCK_D: constexpr, MOST: constexpr, TURN: constexpr,
    EARLY: constexpr,
):  # fmt: skip
    """Merge parts per (row, head) pair: the mean of their means, weighted by 2**level.

    There are at most MOST parts; TURN of them are read at once.
    """
    if EARLY:
        gdc_wait()  # launched early: wait for the parts
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dim, part = tl.arange(0, BLOCK_D), tl.arange(0, MOST)
    active = pair < pairs
    shown = active[:, None] & (dim[None, :] < HEAD_DIM)
    there = active[:, None] & (part[None, :] < parts)
    best = tl.max(tl.load(levels + part[None, :] * pairs + pair[:, None], mask=there, other=float("-inf")), 1)
    pivot = tl.where(best == float("-inf"), 0.0, best)
    place = pair.to(tl.int64)[:, None] * HEAD_DIM + dim[None, :]
    total = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    for first in range(0, parts, TURN):
        for later in tl.static_range(TURN):
            one = first + later
            level = tl.load(levels + one * pairs + pair, mask=active & (one < parts), other=float("-inf"))
            # Parts without weight were not stored; masking the load itself would be slower.
            found = tl.load(means + one * pairs.to(tl.int64) * HEAD_DIM + place, mask=shown & (one < parts), other=0.0)
            weight = tl.exp2(level - pivot)
            total += weight
            mean += tl.where((weight != 0.0)[:, None], found, 0.0) * weight[:, None]
    mean = mean / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(outputs + place, mean.to(outputs.dtype.element_ty), mask=shown)


@cache
def _processors(device: torch.device) -> int:
    """Return the number of multiprocessors of a device; 1 if it is not a CUDA device."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def parts_of(shape: TileShape, programs: int, chosen: Parameters, device: torch.device) -> int:
    """Return the number of programs per tile that fills the device once; 1 if two would share a short context.

    It depends only on the shape, so results are bitwise equal however the rows are filled.
    """
    room = chosen["occupancy"] * _processors(device) // programs
    if room == 2 and shape.longest <= SHORT:
        return 1  # merging two parts takes as long as the second half
    return max(1, min(room, shape.longest // chosen.get("min_part", MIN_PART), MAX_PARTS))


def kinds_of(shape: TileShape, kv_heads: int, group: int, processors: int) -> tuple[str, ...]:
    """Return the properties that select launch parameters besides sizes, the most important first.

    Tiles are "windowed" if rows have a first visible position other than 0. With one program per tile and key head, tiles of
    short contexts are "many" if programs outnumber multiprocessors, and "few" if their slices of 64 pairs fill the device at
    most once. In any context, "waves" means more than WAVES programs per multiprocessor.
    """
    programs, short = shape.busy * kv_heads, shape.longest <= SHORT
    slices = programs * divided_up(shape.tile_rows * group, SLICE)
    kinds = {
        "windowed": shape.windowed,
        "many": short and programs > processors,
        "few": short and slices <= processors,
        "waves": programs > WAVES * processors,
    }
    return tuple(kind for kind, applies in kinds.items() if applies)


def launch_parameters(
    queries: Float[Tensor, "n heads head_dim"], height: int, group: int, kinds: tuple[str, ...] = ()
) -> Parameters:
    """Return launch parameters for tiles of `height` (row, head) pairs.

    Args:
        queries: The queries.
        height: Number of (row, head) pairs of a tile.
        group: Number of query heads per key head.
        kinds: Result of `kinds_of`.
    """
    shape = f"{str(queries.dtype).removeprefix('torch.')}/{max(16, power_of_two(queries.shape[2]))}"
    own = f"{architecture(queries.device)}/{shape}"
    tall = f"{own}/{height}"
    keys = (*(f"{tall}/{kind}" for kind in kinds), f"{tall}/{group}", tall, own, f"{shape}/{height}", shape)
    return parameters("attention", *keys)


def _precision(queries: Float[Tensor, "n heads head_dim"]) -> str:
    """Return the precision of fp32 products: 3xTF32, or IEEE if that needs too many registers."""
    return "tf32x3" if queries.dtype == torch.float32 and queries.shape[2] <= 128 else "ieee"


def tiled_attention(
    queries: Float[Tensor, "n heads head_dim"],
    key_pages: Pages,
    value_pages: Pages,
    tiles: Tiles,
    *,
    scale: float,
    chosen: Parameters | None = None,
    parts: int | None = None,
) -> Float[Tensor, "n heads head_dim"]:
    """Return the twin's result; `scale` must be positive. Rows that are in no tile are undefined.

    The numbers of a head must be contiguous in the pages. `chosen`, `parts` override defaults.
    """
    (n, heads, head_dim), kv_heads = queries.shape, key_pages.shape[1]
    group = heads // kv_heads
    assert scale > 0.0, f"the scale must be positive, got {scale}"
    shape = tiles.shape
    height = max(16, power_of_two(shape.tile_rows * group))
    if chosen is None:
        chosen = launch_parameters(queries, height, group, kinds_of(shape, kv_heads, group, _processors(queries.device)))
    block_m = min(height, chosen["block_m"])
    block_n, shares, page_size = chosen["block_n"], chosen.get("shares", 1), shape.page_size
    slices = divided_up(shape.tile_rows * group, block_m)
    if parts is None:
        parts = parts_of(shape, max(1, shape.busy * slices * kv_heads * shares), chosen, queries.device)
    answer = torch.empty((n, heads, head_dim), dtype=queries.dtype, device=queries.device)
    assert parts <= MAX_PARTS, f"at most {MAX_PARTS} parts are supported, got {parts}"
    held = (parts, n, heads) if parts > 1 else (1, 0, heads)
    means = torch.empty((*held, head_dim), dtype=torch.float32, device=queries.device)
    levels = torch.empty(held, dtype=torch.float32, device=queries.device)
    join = parameters("join", architecture(queries.device))
    _attend[(shape.tiles * slices * kv_heads * shares, parts)](
        *(queries, key_pages, value_pages, answer, means, levels),
        *(tiles.first_rows, tiles.counts, tiles.spans, tiles.begins, tiles.ends, tiles.clear),
        *(tiles.tables, tiles.until, tiles.since, scale * LOG2_E),
        *(*queries.stride(), *key_pages.stride()[:2], *value_pages.stride()[:2], *answer.stride()[:2]),
        *(*means.stride()[:3], *levels.stride()[:2], shape.pages, parts),
        KV_HEADS=kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        PAGE_SIZE=page_size,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_D=max(16, power_of_two(head_dim)),
        SHARES=shares,
        SLICES=slices,
        EVEN=page_size % block_n == 0 or (block_n % page_size == 0 and block_n <= MOST_PAGES * page_size),
        PRECISION=_precision(queries),
        WIDE=max(key_pages.shape[0] * key_pages.stride(0), value_pages.shape[0] * value_pages.stride(0)) >= 2**31,
        SAME=key_pages.stride(0) == value_pages.stride(0) and shares == 1,
        # Without a window few positions need masks: pipeline stages would cost more than they save.
        TAIL=1 if tiles.since is None else None,
        EARLY="launch_pdl" in join,
        **compiled_with(chosen),
    )
    if parts > 1:
        _joined(means, levels, answer, join)
    return answer


def _joined(
    means: Float[Tensor, "parts n heads head_dim"],
    levels: Float[Tensor, "parts n heads"],
    answer: Float[Tensor, "n heads head_dim"],
    chosen: Parameters,
) -> None:
    """Merge the parts of each row into `answer`."""
    parts, n, heads, head_dim = means.shape
    block, block_d = chosen["block"], power_of_two(head_dim)
    grid = (divided_up(n * heads, block),)
    sizes = {"HEAD_DIM": head_dim, "BLOCK": block, "BLOCK_D": block_d, "MOST": MAX_PARTS, "TURN": AT_ONCE}
    _join[grid](means, levels, answer, n * heads, parts, **sizes, EARLY="launch_pdl" in chosen, **compiled_with(chosen))


@kernel
def _store_rows(
    keys,
    values,
    key_pages,
    value_pages,
    slots,
    key_row,
    key_head,
    key_dim,
    value_row,
    value_head,
    value_dim,
    key_slot,
    key_page_head,
    value_slot,
    value_page_head,
    KV_HEADS: constexpr,
    HEAD_DIM: constexpr,
    BLOCK: constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    place = tl.arange(0, BLOCK)
    head = place // HEAD_DIM
    dim = place % HEAD_DIM
    kept = (place < KV_HEADS * HEAD_DIM) & (slot >= 0)
    key = tl.load(keys + row * key_row + head * key_head + dim * key_dim, mask=kept)
    value = tl.load(values + row * value_row + head * value_head + dim * value_dim, mask=kept)
    tl.store(key_pages + slot * key_slot + head * key_page_head + dim, key, mask=kept)
    tl.store(value_pages + slot * value_slot + head * value_page_head + dim, value, mask=kept)


def store_kv(
    keys: Float[Tensor, "n kv_heads head_dim"],
    values: Float[Tensor, "n kv_heads head_dim"],
    key_pages: Pages,
    value_pages: Pages,
    slots: Int64[Tensor, " n"] | Int32[Tensor, " n"],
) -> None:
    """Write row i to slot `slots[i]` in place; -1 is not stored, other slots are untouched.

    The numbers of a head must be contiguous in the pages. Slots other than -1 must be distinct. Triton's conversion to FP8
    clamps.
    """
    count, kv_heads, head_dim = keys.shape
    if count == 0:
        return
    chosen = parameters("store_kv", architecture(keys.device))
    _store_rows[(count,)](
        keys,
        values,
        key_pages,
        value_pages,
        slots,
        *keys.stride(),
        *values.stride(),
        *key_pages.stride()[:2],
        *value_pages.stride()[:2],
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        BLOCK=power_of_two(kv_heads * head_dim),
        **compiled_with(chosen),
    )
