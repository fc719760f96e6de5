"""Lower the spans of a plan to the tensors of a forward pass, and convert its answer to samples.

The work is a few array operations per step, none per token.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter
from struct import Struct
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from dlstep_kernels import AttentionLayout, Drawn, SamplerConfig, Spans, lay_out, visible_range
from dlstep_kernels.choice import has_kernels
from dlstep_kernels.embeddings import ADDED, BLENDED, RENORMALIZED
from dlstep_kernels.sampling import TokenMasks
from dlstep_kernels.tiles import Tiles, lay_tiles

from ..core import Plan, Samples, SamplingParams, Span, SpanSamples
from ..core.request import SEEDS
from ..models.networks import Batch, View, batch_of
from .arena import staged
from .processing import Processing, Unguided, plan_processing
from .profile import region
from .tables import MaskTable, PageTables


# Converting tuples of Python numbers to arrays and back with `struct` takes a third to two thirds of numpy's time.
@lru_cache(maxsize=4096)
def _struct(count: int, code: str) -> Struct:
    return Struct(f"{count}{code}")


_DTYPES = {"q": np.int64, "d": np.float64}  # NumPy's own "q" is another type, which type checks refuse


def joined(tuples: Iterable[tuple[int | float, ...]], code: Literal["q", "d"] = "q") -> np.ndarray:
    """Return the numbers of all tuples in order, as int64 or float64. Raises struct.error for an integer beyond 64 bits."""
    # An array over a bytearray is writable, as torch.from_numpy requires; one over bytes is not.
    return np.frombuffer(bytearray().join([_struct(len(each), code).pack(*each) for each in tuples]), dtype=_DTYPES[code])


def split(array: np.ndarray, counts: Sequence[int]) -> list[tuple[Any, ...]]:
    """Split `array` from its start into tuples of `counts[0]`, `counts[1]`, ... numbers. Ignore the rest."""
    data, code, size = array.tobytes(), array.dtype.char, array.itemsize
    starts = accumulate(counts, initial=0)
    return [_struct(count, code).unpack_from(data, size * start) for count, start in zip(counts, starts, strict=False)]


_IDS = ("tokens", "best_ids", "noise")  # fields of `SpanSamples` that hold integers
NO_ERRORS: Mapping[int, str] = {}


@dataclass(frozen=True, slots=True)
class LoweringTarget:
    """Facts that lowering depends on: page size, head shift, views of attention layers, device, dtype.

    `masks` holds the token masks of constrained requests. `gated` is True if the network has an adapter for drafts.
    """

    page_size: int
    head_shift: int
    views: tuple[View, ...]
    device: torch.device
    dtype: torch.dtype
    masks: MaskTable
    gated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The positions of rows and what they see, which most steps leave unchanged.

    `facts` has per span: rows, start, end, grid origin, grid size, rows that are not stored, and
    row in the page tables. `starts` are the spans' first positions, `firsts` their first packed
    rows. `spans` has what rows see under each sliding window.
    """

    facts: list[tuple[int, ...]]
    starts: Int64[np.ndarray, " s"]
    firsts: Int64[np.ndarray, " s"]
    positions: Int64[np.ndarray, " n"]
    slot_mapping: Int64[np.ndarray, " n"]
    spans: dict[int | None, Spans]


@dataclass(frozen=True, slots=True)
class Gathered:
    """One plan as host arrays, named as for `batch_of`; `process` changes logits.

    `masked` has the spans if some positions have token masks, which `with_masks` computes.
    """

    arrays: dict[str, np.ndarray]
    placed: Placed
    sampler: SamplerConfig
    process: Processing | Unguided | None = None
    masked: tuple[Span, ...] = ()

    @property
    def spans(self) -> dict[int | None, Spans]:
        """Return the positions that rows see, by sliding window."""
        return self.placed.spans


def lower(gathered: Gathered, target: LoweringTarget) -> Batch:
    """Return `gathered` as tensors on the target device, without padding or token masks."""
    layouts: dict[View, AttentionLayout | Tiles] = {}
    for window, group in target.views:
        spans = gathered.spans[window]
        if has_kernels(target.device):
            layouts[window, group] = lay_tiles(spans, group=group, device=target.device)
        else:
            alike = next((layout for (other, _), layout in layouts.items() if other == window), None)
            layouts[window, group] = alike or lay_out(spans, dtype=target.dtype, device=target.device)
    tensors = staged(gathered.arrays, target.device)
    return batch_of(tensors, layouts, gathered.sampler, gathered.process)


def with_masks(batch: Batch, gathered: Gathered, target: LoweringTarget) -> Batch:
    """Compute the token masks of `gathered`, and return its batch with them."""
    if not gathered.masked:
        return batch
    rows = np.zeros(len(batch.sampled_rows), dtype=np.int64)  # rows of padding may sample any id
    found = target.masks.rows_of(gathered.masked)
    rows[: len(found)] = found
    return masked_by(batch, target.masks, staged({"rows": rows}, target.device)["rows"])


def masked_by(batch: Batch, table: MaskTable, rows: Int64[Tensor, " w"]) -> Batch:
    """Return the batch with the masks in these rows of the table."""
    return replace(batch, settings=replace(batch.settings, masks=TokenMasks(table.words, rows)))


def gather(plan: Plan, tables: PageTables, target: LoweringTarget, before: Placed | None = None) -> Gathered:
    """Return the host arrays of `plan`, which has spans; `tables` have applied it.

    `before` is the placement of an earlier plan, reused if the same rows are fed; no page may have
    changed its owner since.
    """
    spans = plan.spans
    facts = [
        (len(fed.tokens), fed.start, fed.end, fed.grid.origin, fed.grid.size, fed.query_only, tables.rows[span.who.seq_id])
        for span, fed in [(span, span.rows) for span in spans]
    ]
    placed = before if before is not None and before.facts == facts else placed_rows(facts, tables, target)
    tokens = joined([span.rows.tokens for span in spans])
    counts = np.array([len(span.wanted.sampled) for span in spans], dtype=np.int64)
    sampled_positions = joined([span.wanted.sampled for span in spans])
    shifts: int | np.ndarray = target.head_shift
    if any(span.wanted.shift is not None for span in spans):
        shifts = np.array([span.wanted.row_shift(target.head_shift) for span in spans])
    sampled_rows = sampled_positions - np.repeat(placed.starts + shifts - placed.firsts, counts)
    positions = placed.positions
    if any(span.rows.positions for span in spans):
        positions, sampled_rows = _reordered(spans, placed, sampled_rows, target.head_shift)
    arrays = {
        "tokens": tokens,
        "positions": positions,
        "slot_mapping": placed.slot_mapping,
        "sampled_rows": sampled_rows,
    }
    if target.gated:
        arrays["gates"] = np.repeat(np.array([span.rows.draft for span in spans], dtype=np.int64), [fact[0] for fact in facts])
    spec = plan.sample_spec
    sampler = SamplerConfig(spec.statistics, spec.ties, spec.best, spec.tempered, spec.all_ids)
    arrays |= _settings(plan, sampled_positions) | _carried(spans, tables.slots)
    if any(span.rows.soft is not None for span in spans):
        arrays |= _soft(spans)
    masked = spans if any(span.wanted.masks for span in spans) else ()
    return Gathered(arrays, placed, sampler, plan_processing(plan), masked)


def _reordered(
    spans: tuple[Span, ...], placed: Placed, sampled_rows: Int64[np.ndarray, " w"], head_shift: int
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " w"]]:
    """Return the positions of all rows and the rows that predict the sampled positions, for spans that state positions."""
    positions, sampled_rows, begin = placed.positions.copy(), sampled_rows.copy(), 0
    for span, first in zip(spans, placed.firsts, strict=True):
        rows, end = span.rows, begin + len(span.wanted.sampled)
        if rows.positions:
            positions[first : first + len(rows.positions)] = rows.positions
            shift = span.wanted.row_shift(head_shift)
            sampled_rows[begin:end] = [first + rows.index(position - shift) for position in span.wanted.sampled]
        begin = end
    return positions, sampled_rows


def placed_rows(facts: list[tuple[int, ...]], tables: PageTables, target: LoweringTarget) -> Placed:
    """Return where the rows of spans with these facts are, and what they see."""
    columns = np.array(facts, dtype=np.int64).reshape(-1, 7).T
    counts, starts, ends, _, _, _, row_of = columns
    firsts = np.cumsum(counts) - counts
    # The facts of each row's span.
    _, row_starts, row_ends, origins, sizes, query_only, row_tables = np.repeat(columns, counts, axis=1)
    offsets = np.arange(len(row_starts)) - np.repeat(firsts, counts)
    positions = row_starts + offsets
    page = positions // target.page_size  # with `take`, half the time of `divmod` and of two indices
    slots = positions + (tables.pages.take(row_tables * tables.pages.shape[1] + page) - page) * target.page_size
    slots[offsets < query_only] = -1
    held = tables.pages[row_of]
    views: dict[int | None, Spans] = {}
    for window in dict.fromkeys(window for window, _ in target.views):
        since, until = visible_range(positions, origins, sizes, row_ends, window=window)
        views[window] = Spans(counts, ends, held, until, since, target.page_size)
    return Placed(facts, starts, firsts, positions, slots, views)


def _soft(spans: tuple[Span, ...]) -> dict[str, np.ndarray]:
    """Return the soft rows of all spans, named as for `batch_of`, padded to the largest number of ids of any span."""
    firsts = accumulate((len(span.rows.tokens) for span in spans), initial=0)
    found = [(span.rows.soft, first - span.rows.start) for span, first in zip(spans, firsts, strict=False) if span.rows.soft]
    counts, width = [len(soft.positions) for soft, _ in found], max(soft.width for soft, _ in found)

    def of_ids(name: str, code: Literal["q", "d"]) -> np.ndarray:
        return joined([tuple(_padded(getattr(soft, name), len(soft.positions), width, 0)) for soft, _ in found], code)

    rows = joined([soft.positions for soft, _ in found]) + np.repeat([first for _, first in found], counts)
    probabilities = of_ids("probabilities", "d")
    # Summed from left to right, so that padding changes no bit. Rounded probabilities may sum to slightly more than 1.
    residuals = np.maximum(1.0 - np.ascontiguousarray(probabilities.reshape(len(rows), -1).T).sum(axis=0), 0.0)
    of_topk = {True: RENORMALIZED, False: BLENDED}
    own = [of_topk[soft.merge.renormalize] if soft.merge.mode == "dmax_topk" else ADDED for soft, _ in found]
    modes = np.repeat(own, counts)
    weights = np.repeat([soft.merge.weight for soft, _ in found], counts)
    return {
        "soft_rows": rows,
        "soft_ids": of_ids("ids", "q"),
        "soft_probabilities": probabilities.astype(np.float32),
        "soft_modes": modes,
        "soft_factors": np.where(modes == ADDED, weights, residuals).astype(np.float32),
    }


def _carried(spans: tuple[Span, ...], slots: Mapping[int, int]) -> dict[str, np.ndarray]:
    """Return the carry slots that each canvas reads and writes, named as for `batch_of`."""
    if spans[0].rows.carry == "none":
        return {}
    facts = np.array(
        [(1 + 2 * slots[span.who.seq_id], span.wanted.draws[0] % 2, span.rows.carry == "fresh") for span in spans],
        dtype=np.int64,
    ).T
    return {"found": facts[0] + 1 - facts[1], "left": facts[0] + facts[1], "fresh": facts[2]}


# Sampling settings of a request: name, neutral value, dtype, and how to get the request's value.
_SETTINGS: tuple[tuple[str, float, type[np.generic], Callable[[SamplingParams], float]], ...] = (
    ("temperatures", 0.0, np.float32, attrgetter("temperature")),
    ("top_k", 0, np.int64, attrgetter("top_k")),
    ("top_p", 1.0, np.float32, attrgetter("top_p")),
    ("min_p", 0.0, np.float32, attrgetter("min_p")),
)


def _settings(plan: Plan, positions: Int64[np.ndarray, " w"]) -> dict[str, np.ndarray]:
    """Return the sampling settings that any sampled row needs, named as for `Settings.of`."""
    spans = [span for span in plan.spans if span.wanted.sampled]
    params = [span.who.params for span in spans]
    penalties = [span.wanted.penalty for span in spans]
    penalised = any(penalties)
    settings = _scored_ids(plan) if plan.sample_spec.scored else {}
    for name, neutral, dtype, of in _SETTINGS:
        values = [*map(of, params)]
        if penalised and name == "temperatures":  # penalised spans are decoded greedily
            values = [0.0 if penalty else value for penalty, value in zip(penalties, values, strict=True)]
        if values.count(neutral) < len(values):
            settings[name] = _per_row(spans, values, dtype)
    if penalised:
        settings["penalised"] = np.fromiter(chain.from_iterable(map(_predecessors, spans)), np.int64, len(positions))
        settings["penalties"] = _per_row(spans, penalties, np.float32)
    if "temperatures" in settings or "noise" in plan.sample_spec.statistics:
        settings |= _noise(spans, positions)
    return settings


def _noise(spans: list[Span], positions: Int64[np.ndarray, " w"]) -> dict[str, np.ndarray]:
    """Return the arguments of the counter-based random numbers of each sampled row."""
    draws = joined([span.wanted.draws for span in spans])
    seeds = _per_row(spans, [span.who.seed % SEEDS for span in spans], np.uint64).view(np.int64)
    return {"seeds": seeds, "sampled_positions": positions, "draws": draws}


def _per_row(spans: list[Span], values: list[float] | list[int], dtype: type[np.generic]) -> np.ndarray:
    """Repeat the value of each span for each of its sampled positions."""
    return np.repeat(np.array(values, dtype=dtype), [len(span.wanted.sampled) for span in spans])


def _scored_ids(plan: Plan) -> dict[str, np.ndarray]:
    """Return scored ids, padded per sampled row to the largest number of any span."""
    spans = plan.spans
    width = max(span.wanted.scored_width for span in spans)
    padded = [_padded(span.wanted.scored_ids, len(span.wanted.sampled), width, -1) for span in spans]
    return {"scored_ids": np.array(list(chain.from_iterable(padded)), dtype=np.int64)} if width else {}


def _padded(numbers: tuple[Any, ...], count: int, width: int, fill: int) -> Iterable[Any]:
    """Return the numbers of `count` rows, each padded with `fill` to `width` numbers."""
    if len(numbers) == count * width:
        return numbers
    own = len(numbers) // count
    pad = (fill,) * (width - own)
    return chain.from_iterable((*numbers[row * own : (row + 1) * own], *pad) for row in range(count))


def _predecessors(span: Span) -> list[int]:
    """Return, for each sampled position, the token before it if both are in one block, else -1."""
    return [
        span.rows.tokens[position - 1 - span.rows.start] if span.rows.start < position != span.rows.grid.start(position) else -1
        for position in span.wanted.sampled
    ]


@region("unpack")
def unpack(
    plan: Plan, packed: Float32[Tensor, "k w"] | None, marks: Sequence[int] | None = None, errors: Mapping[int, str] = NO_ERRORS
) -> Samples:
    """Return the samples of `plan` from the output of `pack`.

    `marks` are those of the spans, if known; `errors` are those of processors, by sequence number.
    """
    if packed is None:
        return Samples(plan, tuple(SpanSamples((), ()) for _ in plan.spans), marks)
    counts, spec = [len(span.wanted.sampled) for span in plan.spans], plan.sample_spec
    scored = [span.wanted.scored_width if spec.scored else 0 for span in plan.spans]
    numbers, line = packed.numpy(), 0
    columns: list[list[tuple[Any, ...]]] = []
    for name, width in {"tokens": 1, "probabilities": 1, **spec.widths(max(scored))}.items():
        lines, line = numbers[line : line + width], line + width
        flat = lines[0] if width == 1 else lines.T.reshape(-1)
        flat = flat.astype(np.int64) if name in _IDS else flat
        columns.append(split(flat, [count * width for count in counts]) if width else [()] * len(counts))
        if name == "scored_probabilities":
            columns[-1] = [_unpadded(found, own, width) for found, own in zip(columns[-1], scored, strict=True)]
    # If a row failed or a number is not finite, the core checks all of them and names the bad one.
    sound = bool(np.isfinite(numbers).all() and numbers[0].min() >= 0)
    rows = tuple(map(SpanSamples, *columns))
    if errors:
        rows = tuple([replace(own, error=errors.get(span.who.seq_id, "")) for span, own in zip(plan.spans, rows, strict=True)])
    return Samples(plan, rows, marks, sound)


def _unpadded(numbers: tuple[float, ...], own: int, width: int) -> tuple[float, ...]:
    """Return the first `own` of each `width` numbers."""
    if own == width:
        return numbers
    return tuple(chain.from_iterable(numbers[start : start + own] for start in range(0, len(numbers), width)))


def pack(drawn: Drawn) -> Float32[Tensor, "k w"]:
    """Stack the answer into one fp32 tensor, a line per number, in order of the fields of `SpanSamples`.

    Ids below 2**24 stay exact.
    """
    best, last = (drawn.best_ids, drawn.best_probabilities), (drawn.noise, drawn.scored_probabilities, drawn.policy)
    columns = (drawn.tokens, drawn.probabilities, drawn.entropies, drawn.margins, *best, *last)
    return torch.cat([column.reshape(len(column), -1).T.float() for column in columns if column is not None])
