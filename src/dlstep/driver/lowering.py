"""From the spans of a plan to the tensors of one forward, and from its answer to samples.

Costs a few array operations a step, none a token.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from dlstep_kernels import AttentionLayout, Drawn, Penalty, Reading, Settings, SoftRows, Spans, lay_out, visible_range
from dlstep_kernels.sampling import Noise

from ..core import DlstepError, Plan, Rows, Samples, Span
from .tables import PageTables

_SIGN = 1 << 63
_GREEDY = Settings()


@dataclass(frozen=True, slots=True)
class Batch:
    """One plan as tensors: `n` packed rows of which `w` positions are wanted.

    `slots` say where each row's keys and values go (-1: nowhere), `layouts` what it sees under each sliding window
    (None: full attention), `wanted` which rows predict the wanted positions, in the order of the plan. `soft` are the rows
    whose embedding is a blend, None if there is none.
    """

    tokens: Int64[Tensor, "1 n"]
    positions: Int64[Tensor, "1 n"]
    slots: Int64[Tensor, " n"]
    layouts: dict[int | None, AttentionLayout]
    wanted: Int64[Tensor, " w"]
    settings: Settings
    reading: Reading
    soft: SoftRows | None


@dataclass(frozen=True, slots=True)
class Target:
    """What a forward is lowered for: sizes of pages, shift of the head, windows of the layers, and where it runs."""

    page_size: int
    head_shift: int
    windows: tuple[int | None, ...]
    device: torch.device
    dtype: torch.dtype


def lower(plan: Plan, tables: PageTables, target: Target) -> Batch:
    """The tensors of `plan`, which must have spans; `tables` are as the plan left them.

    Raises DlstepError if a wanted position is predicted by a row that is not fed.
    """
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
    staged = torch.from_numpy(np.concatenate((tokens, positions, slots, wanted))).to(target.device, non_blocking=True)
    fed, at, stored, wanted_rows = staged.split_with_sizes([total, total, total, len(wanted)])
    held = tables.pages[row_of]
    layouts: dict[int | None, AttentionLayout] = {}
    for window in target.windows:
        since, until = visible_range(positions, origins, sizes, row_ends, window=window)
        view = Spans(counts, ends, held, until, since, target.page_size)
        layouts[window] = lay_out(view, dtype=target.dtype, device=target.device)
    return Batch(
        tokens=fed[None],
        positions=at[None],
        slots=stored,
        layouts=layouts,
        wanted=wanted_rows,
        settings=_settings(plan, wants, wanted_positions, target.device),
        reading=Reading(plan.wants.statistics, plan.wants.ties, plan.wants.best, plan.wants.tempered),
        soft=_soft(spans, firsts, target.device),
    )


def _refuse(plan: Plan, head_shift: int) -> None:
    for span in plan.spans:
        if span.wanted and span.wanted[0] - head_shift < span.start:
            raise DlstepError(
                f"step {plan.step}, request {span.id}: position {span.wanted[0]} is wanted, but the row that predicts it, "
                f"{span.wanted[0] - head_shift}, is not fed: the span starts at {span.start}"
            )


def _soft(spans: tuple[Span, ...], firsts: Int64[np.ndarray, " s"], device: torch.device) -> SoftRows | None:
    """The soft rows of all spans; they blend equally many ids, by one rule."""
    found = [(span, span.soft, int(first)) for span, first in zip(spans, firsts, strict=True) if span.soft is not None]
    if not found:
        return None
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


def _settings(plan: Plan, wants: Int64[np.ndarray, " s"], positions: Int64[np.ndarray, " w"], device: torch.device) -> Settings:
    """Sampling settings of each wanted row; what no span uses stays None."""
    spans, random_ids = plan.spans, "noise" in plan.wants.statistics
    params = [span.params for span in spans]
    penalised = any(span.penalty for span in spans)
    if not random_ids and not penalised and not any(p.temperature > 0 or p.top_k or p.top_p < 1 or p.min_p > 0 for p in params):
        return _GREEDY

    def per_row(values: list[float], dtype: type[np.generic]) -> Tensor:
        return torch.from_numpy(np.repeat(np.array(values, dtype=dtype), wants)).to(device)

    # What is penalised is taken greedily.
    temperatures = [0.0 if span.penalty else span.params.temperature for span in spans]
    hot = any(temperatures)
    noise = None
    if hot or random_ids:
        seeds = np.repeat(np.array([_signed(span.seed) for span in spans], dtype=np.int64), wants)
        draws = np.fromiter(chain.from_iterable(span.draws for span in spans), np.int64, len(positions))
        noise = Noise(*(torch.from_numpy(numbers).to(device) for numbers in (seeds, positions, draws)))
    penalty = None
    if penalised:
        ids = torch.tensor([token for span in spans for token in _predecessors(span)]).to(device)
        penalty = Penalty(ids, per_row([span.penalty for span in spans], np.float32))
    return Settings(
        temperatures=per_row(temperatures, np.float32) if hot else None,
        top_k=per_row([p.top_k for p in params], np.int64) if any(p.top_k for p in params) else None,
        top_p=per_row([p.top_p for p in params], np.float32) if any(p.top_p < 1 for p in params) else None,
        min_p=per_row([p.min_p for p in params], np.float32) if any(p.min_p > 0 for p in params) else None,
        noise=noise,
        penalty=penalty,
    )


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
