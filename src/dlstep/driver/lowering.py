"""From the spans of a plan to the tensors of one forward, and from its answer to samples.

Costs a few array operations a step, none a token.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from dlstep_kernels import AttentionLayout, Drawn, Penalty, Reading, Settings, SoftRows, Spans, lay_out, visible_range
from dlstep_kernels.choice import has_kernels
from dlstep_kernels.sampling import Noise
from dlstep_kernels.tiles import Tiles, lay_tiles

from ..core import DlstepError, Plan, Rows, Samples, Span
from .arena import staged
from .tables import PageTables

View = tuple[int | None, int]  # sliding window of a layer, and how many query heads share one of its key heads

_SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class Batch:
    """One plan as tensors: `n` packed rows of which `w` positions are wanted.

    `slots` say where each row's keys and values go (-1: nowhere), `layouts` what it sees under each sliding window
    (None: full attention) with each number of query heads to a key head, `wanted` which rows predict the wanted positions, in
    the order of the plan. `soft` are the rows whose embedding is a blend, None if there is none.
    """

    tokens: Int64[Tensor, "1 n"]
    positions: Int64[Tensor, "1 n"]
    slots: Int64[Tensor, " n"]
    layouts: Mapping[View, AttentionLayout | Tiles]
    wanted: Int64[Tensor, " w"]
    settings: Settings
    reading: Reading
    soft: SoftRows | None


@dataclass(frozen=True, slots=True)
class Target:
    """What a forward is lowered for: sizes of pages, shift of the head, what layers see, and where it runs."""

    page_size: int
    head_shift: int
    views: tuple[View, ...]
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Gathered:
    """One plan as arrays on the host.

    `arrays` are those of `Batch`, under the same names, and those that `settings_of` takes; `spans` say what rows see under
    each sliding window.
    """

    arrays: dict[str, np.ndarray]
    spans: dict[int | None, Spans]
    reading: Reading


def lower(plan: Plan, tables: PageTables, target: Target) -> Batch:
    """The tensors of `plan`, which must have spans; `tables` are as the plan left them.

    Raises DlstepError if a wanted position is predicted by a row that is not fed.
    """
    gathered = gather(plan, tables, target)
    layouts: dict[View, AttentionLayout | Tiles] = {}
    for window, group in target.views:
        spans = gathered.spans[window]
        if has_kernels(target.device):
            layouts[window, group] = lay_tiles(spans, group=group, device=target.device)
        else:
            alike = next((layout for (other, _), layout in layouts.items() if other == window), None)
            layouts[window, group] = alike or lay_out(spans, dtype=target.dtype, device=target.device)
    soft = _soft(plan, target.device)
    return batch_of(staged(gathered.arrays, target.device), layouts, gathered.reading, soft)


def batch_of(
    tensors: Mapping[str, Tensor], layouts: Mapping[View, AttentionLayout | Tiles], reading: Reading, soft: SoftRows | None
) -> Batch:
    """The batch whose arrays are `tensors`."""
    return Batch(
        tokens=tensors["tokens"][None],
        positions=tensors["positions"][None],
        slots=tensors["slots"],
        layouts=layouts,
        wanted=tensors["wanted"],
        settings=settings_of(tensors),
        reading=reading,
        soft=soft,
    )


def gather(plan: Plan, tables: PageTables, target: Target) -> Gathered:
    """The arrays of `plan`, which must have spans; raises what `lower` raises."""
    spans = plan.spans
    rows = tables.rows
    facts = np.array(
        [(len(s.tokens), s.start, s.end, s.grid.origin, s.grid.size, s.query_only, len(s.wanted), rows[s.id]) for s in spans],
        dtype=np.int64,
    ).T
    counts, starts, ends, _, _, query_only, wants, row_of = facts
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    # Facts of the span that each row belongs to.
    row_starts, row_ends, origins, sizes, row_tables, row_firsts = np.repeat(
        np.stack((starts, ends, facts[3], facts[4], row_of, firsts)), counts, axis=1
    )
    offsets = np.arange(total) - row_firsts
    positions = row_starts + offsets
    page, offset = np.divmod(positions, target.page_size)
    slots = tables.pages[row_tables, page] * target.page_size + offset
    if query_only.any():
        slots[offsets < np.repeat(query_only, counts)] = -1
    tokens = np.fromiter(chain.from_iterable(span.tokens for span in spans), np.int64, total)
    wanted_positions = np.fromiter(chain.from_iterable(span.wanted for span in spans), np.int64, int(wants.sum()))
    wanted = wanted_positions - target.head_shift - np.repeat(starts, wants)
    if wanted.size and int(wanted.min()) < 0:
        _refuse(plan, target.head_shift)
    wanted += np.repeat(firsts, wants)
    held = tables.pages[row_of]
    views: dict[int | None, Spans] = {}
    for window in dict.fromkeys(window for window, _ in target.views):
        since, until = visible_range(positions, origins, sizes, row_ends, window=window)
        views[window] = Spans(counts, ends, held, until, since, target.page_size)
    arrays = {"tokens": tokens, "positions": positions, "slots": slots, "wanted": wanted}
    reading = Reading(plan.wants.statistics, plan.wants.ties, plan.wants.best, plan.wants.tempered)
    return Gathered(arrays | _settings(plan, wants, wanted_positions), views, reading)


def _refuse(plan: Plan, head_shift: int) -> None:
    for span in plan.spans:
        if span.wanted and span.wanted[0] - head_shift < span.start:
            raise DlstepError(
                f"step {plan.step}, request {span.id}: position {span.wanted[0]} is wanted, but the row that predicts it, "
                f"{span.wanted[0] - head_shift}, is not fed: the span starts at {span.start}"
            )


def _soft(plan: Plan, device: torch.device) -> SoftRows | None:
    """The soft rows of all spans; they blend equally many ids, by one rule."""
    if all(span.soft is None for span in plan.spans):
        return None
    firsts = accumulate((len(span.tokens) for span in plan.spans), initial=0)
    found = [(span, span.soft, first) for span, first in zip(plan.spans, firsts, strict=False) if span.soft is not None]
    merge = found[0][1].merge
    rows = [first - span.start + position for span, soft, first in found for position in soft.positions]

    def blended(parts: Iterator[tuple[float, ...]], dtype: torch.dtype) -> Tensor:
        return torch.tensor(list(chain.from_iterable(parts)), dtype=dtype).to(device)

    return SoftRows(
        rows=torch.tensor(rows).to(device),
        ids=blended((soft.ids for _, soft, _ in found), torch.int64).view(len(rows), -1),
        probabilities=blended((soft.probabilities for _, soft, _ in found), torch.float32).view(len(rows), -1),
        residuals=blended((soft.residuals for _, soft, _ in found), torch.float32),
        mode=merge.mode,
        renormalize=merge.renormalize,
        weight=merge.weight,
    )


def _settings(plan: Plan, wants: Int64[np.ndarray, " s"], positions: Int64[np.ndarray, " w"]) -> dict[str, np.ndarray]:
    """Sampling settings of each wanted row, under the names that `settings_of` knows; those that no span uses are left out."""
    spans, random_ids = plan.spans, "noise" in plan.wants.statistics
    params = [span.params for span in spans]
    penalised = any(span.penalty for span in spans)
    if not random_ids and not penalised and not any(p.temperature > 0 or p.top_k or p.top_p < 1 or p.min_p > 0 for p in params):
        return {}
    found: dict[str, np.ndarray] = {}

    def per_row(name: str, values: list[float] | list[int], dtype: type[np.generic]) -> None:
        found[name] = np.repeat(np.array(values, dtype=dtype), wants)

    # What is penalised is taken greedily.
    temperatures = [0.0 if span.penalty else span.params.temperature for span in spans]
    if any(temperatures):
        per_row("temperatures", temperatures, np.float32)
    if any(temperatures) or random_ids:
        per_row("seeds", [_signed(span.seed) for span in spans], np.int64)
        found["sampled"] = positions
        found["draws"] = np.fromiter(chain.from_iterable(span.draws for span in spans), np.int64, len(positions))
    if penalised:
        found["penalised"] = np.array([token for span in spans for token in _predecessors(span)], dtype=np.int64)
        per_row("penalties", [span.penalty for span in spans], np.float32)
    if any(p.top_k for p in params):
        per_row("top_k", [p.top_k for p in params], np.int64)
    if any(p.top_p < 1 for p in params):
        per_row("top_p", [p.top_p for p in params], np.float32)
    if any(p.min_p > 0 for p in params):
        per_row("min_p", [p.min_p for p in params], np.float32)
    return found


def settings_of(tensors: Mapping[str, Tensor]) -> Settings:
    """Sampling settings from what there is of their tensors."""
    noise = Noise(tensors["seeds"], tensors["sampled"], tensors["draws"]) if "seeds" in tensors else None
    penalty = Penalty(tensors["penalised"], tensors["penalties"]) if "penalised" in tensors else None
    rest = {name: tensors.get(name) for name in ("temperatures", "top_k", "top_p", "min_p")}
    return Settings(**rest, noise=noise, penalty=penalty)


def _predecessors(span: Span) -> list[int]:
    """For each wanted position, the token fed in front of it if that is in its group; -1 where there is none."""
    return [
        span.tokens[position - 1 - span.start] if span.start < position != span.grid.start(position) else -1
        for position in span.wanted
    ]


def _signed(seed: int) -> int:
    """The lower 64 bits of a seed, as a signed integer."""
    return ((seed + _SIGN) & (2 * _SIGN - 1)) - _SIGN


def unpack(plan: Plan, packed: Float32[Tensor, "k w"] | None) -> Samples:
    """The samples of `plan` from what `pack` made of the answer."""
    if packed is None:
        return Samples(plan, tuple(Rows((), ()) for _ in plan.spans))
    statistics, best = plan.wants.statistics, plan.wants.best
    lines = iter(packed)
    tokens = next(lines).long().tolist()
    probabilities = next(lines).tolist()
    entropies = next(lines).tolist() if "entropy" in statistics else []
    margins = next(lines).tolist() if "margin" in statistics else []
    noise = next(lines).long().tolist() if "noise" in statistics else []
    rest = packed[len(packed) - 2 * best :]
    best_ids = rest[:best].T.reshape(-1).long().tolist()
    best_probabilities = rest[best:].T.reshape(-1).tolist()
    bounds = pairwise(accumulate((len(span.wanted) for span in plan.spans), initial=0))
    return Samples(
        plan,
        tuple(
            Rows(
                tuple(tokens[begin:end]),
                tuple(probabilities[begin:end]),
                tuple(entropies[begin:end]),
                tuple(margins[begin:end]),
                tuple(best_ids[begin * best : end * best]),
                tuple(best_probabilities[begin * best : end * best]),
                tuple(noise[begin:end]),
            )
            for begin, end in bounds
        ),
    )


def pack(drawn: Drawn) -> Float32[Tensor, "k w"]:
    """The answer as one tensor of a line for each number asked for. Ids are exact in fp32: they are below 2**24."""
    lines = [drawn.tokens, drawn.probabilities, drawn.entropies, drawn.margins, drawn.noise]
    kept = [line.float() for line in lines if line is not None]
    if drawn.best_ids is not None and drawn.best_probabilities is not None:
        kept += [*drawn.best_ids.T.float(), *drawn.best_probabilities.T]
    return torch.stack(kept)
