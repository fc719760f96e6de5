"""From the spans of a plan to the tensors of one forward, and from its answer to samples.

Costs a few array operations a step, none a token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from dlstep_kernels import AttentionLayout, Settings, Spans, lay_out, visible_range
from dlstep_kernels.sampling import Noise

from ..core import DlstepError, Plan, Rows, Samples, SamplingParams, Span, Wants
from .tables import PageTables

_SIGN = 1 << 63
_GREEDY = Settings()


@dataclass(frozen=True, slots=True)
class Batch:
    """One plan as tensors: `n` packed rows of which `w` positions are wanted.

    `slots` say where each row's keys and values go (-1: nowhere), `layouts` what it sees under each sliding window
    (None: full attention), `wanted` which rows predict the wanted positions, in the order of the plan.
    """

    tokens: Int64[Tensor, "1 n"]
    positions: Int64[Tensor, "1 n"]
    slots: Int64[Tensor, " n"]
    layouts: dict[int | None, AttentionLayout]
    wanted: Int64[Tensor, " w"]
    settings: Settings
    wants: Wants


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
        settings=_settings(spans, wants, wanted_positions, target.device),
        wants=plan.wants,
    )


def _refuse(plan: Plan, head_shift: int) -> None:
    for span in plan.spans:
        if span.wanted and span.wanted[0] - head_shift < span.start:
            raise DlstepError(
                f"step {plan.step}, request {span.id}: position {span.wanted[0]} is wanted, but the row that predicts it, "
                f"{span.wanted[0] - head_shift}, is not fed: the span starts at {span.start}"
            )


def _settings(
    spans: tuple[Span, ...],
    wants: Int64[np.ndarray, " s"],
    positions: Int64[np.ndarray, " w"],
    device: torch.device,
) -> Settings:
    """Sampling settings of each wanted row; what no span uses stays None."""
    params = [span.params for span in spans]
    if not any(p.temperature > 0 or p.top_k or p.top_p < 1 or p.min_p > 0 for p in params):
        return _GREEDY

    def per_row(read: Callable[[SamplingParams], float], dtype: type[np.generic]) -> Tensor:
        return torch.from_numpy(np.repeat(np.array([read(p) for p in params], dtype=dtype), wants)).to(device)

    hot = any(p.temperature > 0 for p in params)
    noise = None
    if hot:
        seeds = np.repeat(np.array([_signed(span.seed) for span in spans], dtype=np.int64), wants)
        draws = np.fromiter(chain.from_iterable(span.draws for span in spans), np.int64, len(positions))
        noise = Noise(*(torch.from_numpy(numbers).to(device) for numbers in (seeds, positions, draws)))
    return Settings(
        temperatures=per_row(lambda p: p.temperature, np.float32) if hot else None,
        top_k=per_row(lambda p: p.top_k, np.int64) if any(p.top_k for p in params) else None,
        top_p=per_row(lambda p: p.top_p, np.float32) if any(p.top_p < 1 for p in params) else None,
        min_p=per_row(lambda p: p.min_p, np.float32) if any(p.min_p > 0 for p in params) else None,
        noise=noise,
    )


def _signed(seed: int) -> int:
    """The lower 64 bits of a seed, as a signed integer."""
    return ((seed + _SIGN) & (2 * _SIGN - 1)) - _SIGN


def unpack(plan: Plan, packed: Float32[Tensor, "k w"] | None) -> Samples:
    """The samples of `plan` from tokens, probabilities and the statistics asked for, as one tensor on the host."""
    if packed is None:
        return Samples(plan, tuple(Rows((), ()) for _ in plan.spans))
    tokens = packed[0].long().tolist()
    numbers = packed[1:].tolist()
    probabilities = numbers.pop(0)
    entropies = numbers.pop(0) if "entropy" in plan.wants.statistics else []
    margins = numbers.pop(0) if "margin" in plan.wants.statistics else []
    bounds = pairwise(accumulate((len(span.wanted) for span in plan.spans), initial=0))
    return Samples(
        plan,
        tuple(
            Rows(
                tuple(tokens[begin:end]),
                tuple(probabilities[begin:end]),
                tuple(entropies[begin:end]),
                tuple(margins[begin:end]),
            )
            for begin, end in bounds
        ),
    )
