"""Passes ahead: the device unmasks by itself, and its samples are used if it fed all rows of the plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from ..core import EMPTY_CACHE, Ids, Plan, PlanAhead, Span
from .arena import staged
from .executor import Executor, Packed, Pending, to_host
from .lowering import Gathered, Placed


@dataclass(frozen=True, slots=True)
class PassAhead:
    """A forward pass that runs before its plan is known: `plan` with masks, and the tokens that the device fed instead."""

    plan: Plan
    placed: Placed
    tokens: Pending
    pending: Pending

    def samples_of(self, plan: Plan) -> Pending | None:
        """Return the samples of `plan`, which is now known; None unless this pass fed all its rows."""
        if plan.cache_digest == EMPTY_CACHE or (plan.step, plan.sample_spec) != (self.plan.step, self.plan.sample_spec):
            return None
        fed, spans = self.tokens.wait(), self.plan.spans
        assert fed is not None
        tokens = tuple(fed[0].long().tolist())
        rows = accumulate([len(span.rows.tokens) for span in spans], initial=0)
        columns = accumulate([len(span.wanted.sampled) for span in spans], initial=0)
        own = {span.who.seq_id: (span, row, column) for span, row, column in zip(spans, rows, columns, strict=False)}
        chosen: list[int] = []
        for span in plan.spans:
            other, row, column = own.get(span.who.seq_id, (None, 0, 0))
            places = None if other is None else _places(span, other, tokens[row : row + len(other.rows.tokens)])
            if places is None:
                return None
            chosen += [column + place for place in places]
        return replace(self.pending, columns=chosen)


def _places(span: Span, fed: Span, tokens: Ids) -> list[int] | None:
    """Return the indices of `span`'s samples in `fed`; None unless the rows of `fed`, with `tokens`, equal those of `span`."""
    wanted, all_of = span.wanted, {position: place for place, position in enumerate(fed.wanted.sampled)}
    places = [all_of[position] for position in wanted.sampled if position in all_of]
    same = replace(fed.wanted, sampled=wanted.sampled, draws=tuple([fed.wanted.draws[place] for place in places])) == wanted
    # `final_rows` may differ: the device stores all rows alike.
    rows = replace(fed.rows, tokens=tokens, final_rows=span.rows.final_rows)
    return places if same and rows == span.rows and len(places) == len(wanted.sampled) else None


def launched(
    ahead: PlanAhead, gathered: Gathered, executor: Executor, columns: Sequence[int] | None, device: torch.device
) -> PassAhead:
    """Launch the forward pass of `ahead`. The device replaces the masks that the last answer decides.

    `columns` has the columns of the answer that belong to `ahead.before`; None: all.
    """
    unmasking, answer, tokens = unmasking_of(ahead, gathered, columns, device), executor.answer, Pending(None)

    def unmask(rows: Int64[Tensor, " n"]) -> None:
        nonlocal tokens
        if unmasking is not None and answer is not None:
            unmasking.apply(rows, answer)
        tokens = to_host(rows[None].float())  # ids below 2**24 stay exact

    pending = executor.submit(gathered, unmask)
    return PassAhead(ahead.plan, gathered.placed, tokens, pending)


@dataclass(frozen=True, slots=True)
class Unmasking:
    """For each sampled position: column of the answer, row of the token, number of the span, and threshold."""

    columns: Int64[Tensor, " w"]
    rows: Int64[Tensor, " w"]
    spans: Int64[Tensor, " w"]
    least: Float64[Tensor, " w"]

    def apply(self, tokens: Int64[Tensor, " n"], packed: Packed) -> None:
        """Replace masks in `tokens` by the answer's certain tokens and by the first most probable one of each span."""
        drawn, probabilities = packed[:2, self.columns]
        # The bits of positive floats sort like the floats. Below them, earlier positions have larger numbers.
        keys = (probabilities.view(torch.int32).long() << 32) + torch.arange(len(self.rows), 0, -1, device=tokens.device)
        best = torch.zeros_like(keys).scatter_reduce(0, self.spans, keys, "amax")
        certain = (probabilities >= self.least) | (keys == best[self.spans])
        # A failed row has the token -1, which has no embedding.
        tokens[self.rows] = torch.where(certain, drawn.long().clamp(min=0), tokens[self.rows])


def unmasking_of(ahead: PlanAhead, gathered: Gathered, columns: Sequence[int] | None, device: torch.device) -> Unmasking | None:
    """Return how to unmask with the samples of `ahead.before`; None without samples."""
    firsts = zip(ahead.plan.spans, gathered.placed.firsts.tolist(), ahead.certain_from, strict=True)
    facts = {span.who.seq_id: (first - span.rows.start, certain) for span, first, certain in firsts}
    sampled = [span for span in ahead.before.spans if span.wanted.sampled]
    if not sampled:
        return None
    offsets, certain = zip(*[facts[span.who.seq_id] for span in sampled], strict=True)
    counts = [len(span.wanted.sampled) for span in sampled]
    rows = np.concatenate([span.wanted.sampled for span in sampled]) + np.repeat(offsets, counts)
    arrays = {
        "columns": np.arange(len(rows)) if columns is None else np.array(columns),
        "rows": rows,
        "spans": np.repeat(np.arange(len(sampled)), counts),
        "least": np.repeat(certain, counts),
    }
    return Unmasking(**staged(arrays, device))
