"""Sample from logits that are sharded by vocabulary: ranks evaluate their ids, and merge the parts.

Two small exchanges replace one of all logits. The first finds each row's maximum, to which
perturbed scores are relative; with it, every rank computes exactly the scores that `sample`
computes for whole rows, so ties and draws are exact. For filters, logits are gathered.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32
from torch import Tensor
from torch.nn.functional import pad

from .sampling import (
    SIMPLE,
    Drawn,
    Penalty,
    SamplerConfig,
    Settings,
    divisors,
    filtered,
    first_best,
    forbid,
    in_order,
    log_sums_of,
    penalise,
    perturbed,
    random_ids,
    sample,
)

Exchange = Callable[[Tensor], list[Tensor]]  # returns the tensors of all ranks, in rank order


@dataclass(frozen=True, slots=True)
class VocabularyShard:
    """The ids of one rank: `count` of `total` ids, from `first` on. No rank has more than `most`."""

    first: int
    count: int
    total: int
    most: int


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part in a result for all ids: the ids of its weights, and its exchange."""

    cut: VocabularyShard
    exchange: Exchange


def cut_of(total: int, rank: int, size: int) -> VocabularyShard:
    """Return the ids of rank `rank` of `size`; the last ranks may have fewer, or none.

    The first id is even, because kernels compute random numbers for pairs of ids.
    """
    most = min(2 * -(-total // (2 * size)), total)
    first = min(rank * most, total)
    return VocabularyShard(first, min(most, total - first), total, most)


def sample_cut(
    logits: Float[Tensor, "n own"],
    settings: Settings,
    cut: VocabularyShard,
    exchange: Exchange,
    *,
    vocab_size: int,
    mask_id: int | None,
    sampler: SamplerConfig = SIMPLE,
) -> Drawn:
    """Return the result of `sample` for whole rows, bitwise equal on all ranks."""
    if filtered(settings):
        whole = gather_columns(logits, cut, exchange)
        return sample(whole, settings, vocab_size=vocab_size, mask_id=mask_id, sampler=sampler)
    allowed, peaks = own_peaks(logits, settings, cut, vocab_size=vocab_size, mask_id=mask_id)
    peaks = merged_peaks(exchange(peaks))
    parts = exchange(own_part(allowed, peaks, settings, cut, sampler))
    return merged(parts, peaks, settings, vocab_size=vocab_size, sampler=sampler)


def gather_columns(logits: Float[Tensor, "n own"], cut: VocabularyShard, exchange: Exchange) -> Float[Tensor, "n total"]:
    """Return whole rows of logits from each rank's columns."""
    return torch.cat(exchange(pad(logits, (0, cut.most - cut.count))), dim=1)[:, : cut.total]


def own_peaks(
    logits: Float[Tensor, "n own"], settings: Settings, cut: VocabularyShard, *, vocab_size: int, mask_id: int | None
) -> tuple[Float32[Tensor, "n ids"], Float32[Tensor, "2 n"]]:
    """Return this rank's logits (-inf: forbidden), and row maxima of all and of allowed ones."""
    logits = logits.float()
    allowed = logits[:, : max(vocab_size - cut.first, 0)].clone()
    if not allowed.shape[1]:  # a dummy id, which never wins
        allowed = torch.full((len(logits), 1), float("-inf"), device=logits.device)
    elif settings.penalty is not None:
        penalise(allowed, Penalty(settings.penalty.ids - cut.first, settings.penalty.amounts))
    if mask_id is not None and 0 <= mask_id - cut.first < allowed.shape[1]:
        allowed[:, mask_id - cut.first] = float("-inf")
    if settings.masks is not None:
        forbid(allowed, settings.masks, cut.first)
    everything = logits if logits.shape[1] else allowed
    return allowed, torch.stack([everything.amax(-1), allowed.amax(-1)])


def merged_peaks(peaks: list[Float32[Tensor, "2 n"]]) -> Float32[Tensor, "2 n"]:
    """Return the maxima of whole rows; NaN of any rank wins."""
    return torch.stack(peaks).amax(0)


def own_part(
    allowed: Float32[Tensor, "n ids"],
    peaks: Float32[Tensor, "2 n"],
    settings: Settings,
    cut: VocabularyShard,
    sampler: SamplerConfig,
) -> Float32[Tensor, "w n"]:
    """Return what `merged` needs from this rank, one row per number. Ids below 2**24 are exact."""
    plain = allowed - peaks[1][:, None]
    scores = plain if settings.temperatures is None else plain / divisors(settings.temperatures)[:, None]
    raced = perturbed(scores, settings, cut.first)
    winners = first_best(raced, sampler.ties)[:, None]
    weights = scores.exp()
    measured = weights if sampler.tempered or scores is plain else plain.exp()
    lines = [raced.gather(1, winners)[:, 0], winners[:, 0] + cut.first, measured.gather(1, winners)[:, 0], measured.sum(-1)]
    if "entropy" in sampler.statistics:
        lines += [torch.where(weights > 0, weights * scores, 0.0).sum(-1)]
    if {"entropy", "margin"} & sampler.statistics:
        lines += [weights.sum(-1)]
    if "margin" in sampler.statistics:
        lines += [*pad(weights, (0, 1)).topk(2, -1).values.T]
    if sampler.best:
        lines += _ranked(scores if sampler.tempered else plain, measured, sampler, cut)
    if settings.scored_ids is not None:
        own = settings.scored_ids - cut.first
        there = (own >= 0) & (own < allowed.shape[1]) & (settings.scored_ids >= 0)
        lines += [*torch.where(there, measured.gather(1, own.clamp(0, allowed.shape[1] - 1)), 0.0).T]
    return torch.stack([line.float() for line in lines])


def _ranked(
    ranked: Float32[Tensor, "n ids"], measured: Float32[Tensor, "n ids"], sampler: SamplerConfig, cut: VocabularyShard
) -> list[Tensor]:
    """Return lines of values, then ids, then weights of this rank's best ids."""
    count = sampler.best
    more = max(0, count - ranked.shape[1])
    ranked, measured = pad(ranked, (0, more), value=float("-inf")), pad(measured, (0, more))
    ids = in_order(ranked, sampler.ties)[:, :count]
    return [*ranked.gather(1, ids).T, *(ids + cut.first).T, *measured.gather(1, ids).T]


def merged(
    parts: list[Float32[Tensor, "w n"]],
    peaks: Float32[Tensor, "2 n"],
    settings: Settings,
    *,
    vocab_size: int,
    sampler: SamplerConfig,
) -> Drawn:
    """Return one result per row from the parts of all ranks, in rank order."""
    lines = iter(torch.stack(parts).unbind(1))  # each line has one number of all ranks
    raced, tokens, chosen, totals = (next(lines) for _ in range(4))
    broken = ~((peaks[0] < float("inf")) & (peaks[1] > float("-inf")))
    place = first_best(raced.T, sampler.ties)[None]
    total = totals.sum(0)
    probabilities = chosen.gather(0, place)[0] / total
    best_ids = best_probabilities = scored = log_sums = None
    entropies, margins = _statistics(lines, broken, sampler)
    if sampler.best:
        best_ids, best_probabilities = _best(
            [torch.stack([next(lines) for _ in range(sampler.best)], 2) for _ in range(3)], total, broken, sampler
        )
    if settings.scored_ids is not None:
        scored = torch.stack([line.sum(0) / total for line in lines], 1)
        scored = scored.masked_fill(broken[:, None], 0.0)
    if "log_sum" in sampler.statistics:
        log_sums = log_sums_of(peaks[1], total, settings, sampler, broken)
    return Drawn(
        tokens.gather(0, place)[0].nan_to_num(-1.0).long().masked_fill(broken, -1),
        probabilities.masked_fill(broken, 0.0),
        entropies,
        margins,
        random_ids(settings, vocab_size) if "noise" in sampler.statistics else None,
        best_ids,
        best_probabilities,
        log_sums,
        scored,
    )


def _statistics(lines: Iterator[Tensor], broken: Tensor, sampler: SamplerConfig) -> tuple[Tensor | None, Tensor | None]:
    """Return entropies and margins from the next lines; None, without lines, if not requested."""
    entropies = margins = None
    moment = next(lines).sum(0) if "entropy" in sampler.statistics else None
    weight = next(lines).sum(0) if {"entropy", "margin"} & sampler.statistics else None
    if moment is not None and weight is not None:
        entropies = (weight.log() - moment / weight).clamp(min=0.0).masked_fill(broken, 0.0)
    if "margin" in sampler.statistics and weight is not None:
        pair = torch.cat([next(lines), next(lines)]).topk(2, 0).values / weight
        margins = (pair[0] - pair[1]).masked_fill(broken, 0.0)
    return entropies, margins


def _best(
    lists: list[Float32[Tensor, "ranks n best"]], total: Float32[Tensor, " n"], broken: Tensor, sampler: SamplerConfig
) -> tuple[Tensor, Tensor]:
    """Return the most probable ids of all lists (values, ids, weights), each sorted by `ties`."""
    ordered = [values.flip(0) if sampler.ties == "highest" else values for values in lists]
    values, ids, weights = (part.transpose(0, 1).flatten(1) for part in ordered)
    places = in_order(values, "lowest")[:, : sampler.best]
    probabilities = weights.gather(1, places) / total[:, None]
    best = ids.gather(1, places).long()
    return best.masked_fill(broken[:, None], -1), probabilities.masked_fill(broken[:, None], 0.0)
