"""Sample one token per row from logits, in fp32: filters, ties, noise and broken rows."""

from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float32, Int32, Int64
from torch import Tensor
from torch.nn.functional import pad

from .choice import with_kernel
from .draws import RENOISE, draw_keys, integers, uniform

RowInts = Int64[Tensor, " n"]  # one number for each row
RowFloats = Float32[Tensor, " n"]
Scores = Float32[Tensor, "n vocab"]  # ... and each id
Ties = Literal["highest", "lowest"]
Statistic = Literal["entropy", "margin", "noise", "policy"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Counters of each row's random numbers."""

    seeds: RowInts
    """Seed of each row: 64 bits, read as a signed integer."""
    positions: RowInts
    """Position of each row."""
    draws: RowInts
    """Draw number of each row."""


@dataclass(frozen=True, slots=True)
class Penalty:
    """An amount to subtract from the logit of one id in each row."""

    ids: RowInts
    """The id of each row; -1: none."""
    amounts: RowFloats
    """The amount of each row."""


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """The ids that each row may sample."""

    words: Int32[Tensor, "lines words"]
    """Masks: bit i of word w of a line is id 32 * w + i."""
    rows: RowInts
    """The line of each row."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to sample each row; a field is None if no row needs it."""

    temperatures: RowFloats | None = None
    """Temperature of each row; 0: greedy."""
    top_k: RowInts | None = None
    """Number of most probable ids to sample from; 0: all."""
    top_p: RowFloats | None = None
    """Sample from the most probable ids that together have this probability; 1: all."""
    min_p: RowFloats | None = None
    """Sample from ids with at least this fraction of the best id's probability; 0: all."""
    noise: Noise | None = None
    """Counters, required with `temperatures` and for the statistic `noise`."""
    penalty: Penalty | None = None
    """Applied before everything else."""
    scored_ids: Int64[Tensor, "n k"] | None = None
    """Ids whose probabilities are returned; -1: none."""
    masks: TokenMasks | None = None
    """The ids that rows may sample."""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], rows: int) -> "Settings":
        """Return the settings from named tensors, without token masks; settings that are not needed are missing.

        Args:
            tensors: Tensors by name. `seeds`, `sampled_positions` and `draws` make `noise`;
                `penalised` and `penalties` make `penalty`; the other names are those of fields.
            rows: Number of rows.
        """
        return cls(
            **{name: tensors.get(name) for name in ("temperatures", "top_k", "top_p", "min_p")},
            noise=Noise(tensors["seeds"], tensors["sampled_positions"], tensors["draws"]) if "seeds" in tensors else None,
            penalty=Penalty(tensors["penalised"], tensors["penalties"]) if "penalised" in tensors else None,
            scored_ids=tensors["scored_ids"].view(rows, -1) if "scored_ids" in tensors else None,
            masks=None,
        )


@dataclass(frozen=True, slots=True)
class SamplerConfig:
    """The statistics to report per row besides token and probability, and how to compute them."""

    statistics: AbstractSet[Statistic] = frozenset()
    """Which statistics to report."""
    ties: Ties = "highest"
    """Which of equal ids counts as larger."""
    best: int = 0
    """Number of most probable ids to report."""
    tempered: bool = True
    """Report probabilities of the sampled distribution, else of the plain softmax over allowed ids."""
    all_ids: bool = False
    """Allow all ids; pass the head's width as `vocab_size` and `mask_id` None."""
    cap: float | None = None
    """Limit for the logits, applied first (see `capped`); None: unlimited."""


SIMPLE = SamplerConfig()


@dataclass(frozen=True, slots=True)
class Drawn:
    """The result for each row. Statistics that were not requested are None."""

    tokens: RowInts
    """Sampled ids; -1 in rows with non-finite logits."""
    probabilities: RowFloats
    """Probability of each sampled id; 0 in rows with non-finite logits."""
    entropies: RowFloats | None = None
    """Entropies in nats."""
    margins: RowFloats | None = None
    """Best minus second-best probability."""
    noise: RowInts | None = None
    """Uniform random ids below `vocab_size`."""
    best_ids: Int64[Tensor, "n best"] | None = None
    """The most probable ids, the most probable first."""
    best_probabilities: Float32[Tensor, "n best"] | None = None
    """Their probabilities."""
    scored_probabilities: Float32[Tensor, "n k"] | None = None
    """Probabilities of `Settings.scored_ids`."""
    policy: Float32[Tensor, "n _numbers"] | None = None
    """What `policy_of` returns; `sample` leaves it out."""


MAX_BEST = 32  # maximum of `best` in kernels


def filtered(settings: Settings) -> bool:
    """Return whether a filter needs the logits of whole rows."""
    return settings.top_k is not None or settings.top_p is not None or settings.min_p is not None


def sampled_by_kernel(logits: Tensor, settings: Settings, *, sampler: SamplerConfig = SIMPLE, **others: object) -> bool:
    """Return whether the kernel supports the settings; filters need the twin's sorted logits."""
    del logits, others
    if sampler.cap is not None and (settings.temperatures is None or settings.scored_ids is not None):
        return False  # the kernel caps logits only for canvases, which have a temperature and no scored ids
    return not filtered(settings) and sampler.best <= MAX_BEST and (settings.temperatures is None or settings.noise is not None)


def capped(logits: Float[Tensor, "n vocab"], cap: float | None) -> Scores:
    """Return cap * tanh(logits / cap) in fp32, or only convert the logits if `cap` is None."""
    logits = logits.float()
    return logits if cap is None else torch.tanh(logits / cap) * cap


@with_kernel("sampling", suits=sampled_by_kernel)
def sample(
    logits: Float[Tensor, "n vocab"],
    settings: Settings,
    *,
    vocab_size: int,
    mask_id: int | None,
    sampler: SamplerConfig = SIMPLE,
) -> Drawn:
    """Sample one token per row; return it with its probability and the requested statistics.

    The distribution: cap the logits; subtract penalties; forbid ids from `vocab_size` on, `mask_id` and those that
    the row's mask lacks; divide logits by the temperature (greedy rows: by 1); drop ids after the
    first whose cumulative probability exceeds `top_p` (equal logits in ascending order of id); then
    logits below the `top_k`-th largest; then probabilities below `min_p` times the largest. Greedy
    rows take the largest logit, other rows the largest logit plus Gumbel noise; `sampler.ties`
    selects among equal ones.

    A row with NaN or +inf, or without an allowed finite logit, is broken: token -1, probability 0,
    statistics 0. Best ids are ordered by logit; with probability 0 the id is arbitrary. In
    `scored_probabilities`, forbidden and dropped ids have 0.

    Args:
        logits: Logits of each row.
        settings: How to sample each row.
        vocab_size: Number of ids that may be sampled.
        mask_id: Id that is never sampled; None: no such id.
        sampler: Statistics to report.
    """
    logits = capped(logits, sampler.cap)
    largest = logits.amax(-1)  # NaN if there is one
    allowed = _allowed(logits, settings, vocab_size, mask_id)
    best = allowed.amax(-1)
    # Subtract the maximum, so that tiny temperatures cannot cause infinities.
    plain = allowed - best[:, None]
    scores = _filtered(plain, settings)
    tokens = _first_best(_perturbed(scores, settings), sampler.ties)
    weights = scores.exp()
    measured = weights if sampler.tempered else plain.exp()
    total = measured.sum(-1)
    chosen = measured.gather(1, tokens[:, None]).squeeze(1) / total
    broken = ~((largest < float("inf")) & (best > float("-inf")))
    return Drawn(
        tokens.masked_fill(broken, -1),
        chosen.masked_fill(broken, 0.0),
        *_statistics(measured, weights, broken, sampler.statistics),
        noise=_random_ids(settings, vocab_size) if "noise" in sampler.statistics else None,
        **_best(scores if sampler.tempered else plain, measured, total, broken, sampler),
        scored_probabilities=None if settings.scored_ids is None else _scored(measured, total, settings.scored_ids, broken),
    )


def policy_of(
    drawn: Drawn,
    raw: Float[Tensor, "n vocab"],
    logits: Float[Tensor, "n vocab"],
    settings: Settings,
    *,
    vocab_size: int,
    mask_id: int | None,
    sampler: SamplerConfig,
) -> Float32[Tensor, "n _numbers"]:
    """Return, for each row, the entropy of its plain softmax, and log-probabilities of its token and of its best ids.

    The log-probabilities in the distribution that `sample` drew from come first, then those in the plain softmax of `raw` over
    all its ids. The numbers of a broken row are 0.

    Args:
        drawn: The samples of the rows.
        raw: Logits of the network.
        logits: Logits that were sampled: those of the network after processors.
        settings: As for `sample`.
        vocab_size: As for `sample`.
        mask_id: As for `sample`.
        sampler: As for `sample`.
    """
    plain = capped(raw, sampler.cap).log_softmax(-1)
    allowed = _allowed(capped(logits, sampler.cap), settings, vocab_size, mask_id)
    scores = _filtered(allowed - allowed.amax(-1, keepdim=True), settings).log_softmax(-1)
    ids = drawn.tokens[:, None]
    if drawn.best_ids is not None:
        ids = torch.cat((ids, drawn.best_ids), 1)
    broken, ids = ids[:, :1] < 0, ids.clamp(0, scores.shape[1] - 1)
    entropies = torch.special.entr(plain.exp()).sum(-1, keepdim=True)
    numbers = torch.cat((entropies, scores.gather(1, ids), plain.gather(1, ids)), 1)
    return numbers.masked_fill(broken, 0.0).clamp(min=torch.finfo(torch.float32).min)


def _allowed(logits: Scores, settings: Settings, vocab_size: int, mask_id: int | None) -> Float32[Tensor, "n ids"]:
    """Return the logits of ids below `vocab_size` with penalties, in which forbidden ids have -inf."""
    allowed = logits[:, :vocab_size].clone()
    if settings.penalty is not None:
        _penalise(allowed, settings.penalty)
    if mask_id is not None and mask_id < allowed.shape[1]:
        allowed[:, mask_id] = float("-inf")
    if settings.masks is not None:
        _forbid(allowed, settings.masks)
    return allowed


def _forbid(allowed: Float32[Tensor, "n ids"], masks: TokenMasks) -> None:
    """Set the logits of ids outside the mask of their row to -inf, in place."""
    words = masks.words.index_select(0, masks.rows)
    bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=words.device) & 1
    own = bits.flatten(1)[:, : allowed.shape[1]]
    allowed.masked_fill_(pad(own, (0, allowed.shape[1] - own.shape[1])) == 0, float("-inf"))


def _penalise(allowed: Scores, penalty: Penalty) -> None:
    """Subtract each row's penalty, in place."""
    penalised = (penalty.ids >= 0) & (penalty.ids < allowed.shape[1])
    ids = penalty.ids.clamp(0, allowed.shape[1] - 1)[:, None]
    allowed.scatter_add_(1, ids, torch.where(penalised, -penalty.amounts, 0.0)[:, None])


def _filtered(scores: Scores, settings: Settings) -> Scores:
    """Apply temperatures and filters to `scores`, whose maximum is 0; dropped ids become -inf."""
    if settings.temperatures is not None:
        divisors = torch.where(settings.temperatures > 0, settings.temperatures, 1.0)  # 1 in greedy rows
        scores = scores / divisors.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    if settings.top_p is not None or settings.top_k is not None:
        scores = _truncated(scores, settings)
    if settings.min_p is not None:
        scores = scores.masked_fill(scores.exp() < settings.min_p[:, None], float("-inf"))
    return scores


def _statistics(
    measured: Scores,
    weights: Scores,
    broken: Bool[Tensor, " n"],
    statistics: AbstractSet[Statistic],
) -> tuple[RowFloats | None, RowFloats | None]:
    """Return entropies of the distribution `measured` and margins of the sampled one; None if not requested."""
    entropies = margins = None
    if "entropy" in statistics:
        probabilities = measured / measured.sum(-1, keepdim=True)
        entropies = torch.special.entr(probabilities).sum(-1).masked_fill(broken, 0.0)
    if "margin" in statistics:
        # A missing second id has probability 0.
        pair = pad(weights / weights.sum(-1, keepdim=True), (0, 1)).topk(2, -1).values
        margins = (pair[:, 0] - pair[:, 1]).masked_fill(broken, 0.0)
    return entropies, margins


def _best(
    ranked: Scores,
    measured: Scores,
    total: RowFloats,
    broken: Bool[Tensor, " n"],
    sampler: SamplerConfig,
) -> dict[str, Tensor]:
    """Return the most probable ids of each row and their probabilities (0 past the vocabulary)."""
    count, width = sampler.best, ranked.shape[1]
    if not count:
        return {}
    ranked = pad(ranked, (0, max(0, count - width)), value=float("-inf"))
    measured = pad(measured, (0, max(0, count - width)))
    if count == 1:
        ids = _first_best(ranked, sampler.ties)[:, None]
    elif sampler.ties == "lowest":
        ids = ranked.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    else:
        flipped = ranked.flip(-1).sort(dim=-1, descending=True, stable=True).indices[:, :count]
        ids = ranked.shape[1] - 1 - flipped
    probabilities = measured.gather(1, ids) / total[:, None]
    return {
        "best_ids": ids.masked_fill(broken[:, None], -1),
        "best_probabilities": probabilities.masked_fill(broken[:, None], 0.0),
    }


def _scored(
    measured: Scores, total: RowFloats, ids: Int64[Tensor, "n k"], broken: Bool[Tensor, " n"]
) -> Float32[Tensor, "n k"]:
    """Return the probability of each scored id; 0 for an id outside the vocabulary."""
    last = measured.shape[1] - 1
    probabilities = measured.gather(1, ids.clamp(0, last)) / total[:, None]
    return probabilities.masked_fill((ids < 0) | (ids > last) | broken[:, None], 0.0)


def _random_ids(settings: Settings, vocab_size: int) -> RowInts:
    """Return a uniform id below `vocab_size` for each row."""
    assert settings.noise is not None, "random ids need the counters of each row"
    noise = settings.noise
    return integers(draw_keys(noise.seeds, noise.positions, noise.draws, purpose=RENOISE), vocab_size)


def _truncated(scores: Scores, settings: Settings) -> Scores:
    """Apply top-p, then top-k to `scores`; dropped ids become -inf."""
    ordered, ids = scores.sort(dim=-1, descending=True, stable=True)
    if settings.top_p is not None:
        before = pad(ordered.softmax(-1).cumsum(-1)[:, :-1], (1, 0))
        top_p = settings.top_p[:, None]
        # With top_p = 1 drop nothing: cumulative sums may round to more than 1.
        ordered = ordered.masked_fill((before > top_p) & (top_p < 1.0), float("-inf"))
    if settings.top_k is not None:
        count = ordered.shape[1]
        last = torch.where(settings.top_k > 0, settings.top_k, count).clamp(max=count)[:, None] - 1
        ordered = ordered.masked_fill(ordered < ordered.gather(1, last), float("-inf"))
    return torch.empty_like(scores).scatter_(1, ids, ordered)


def _perturbed(scores: Scores, settings: Settings) -> Scores:
    """Add Gumbel noise to `scores`, except in greedy rows."""
    if settings.temperatures is None or settings.noise is None:
        return scores
    noise = settings.noise
    keys = draw_keys(noise.seeds, noise.positions, noise.draws)
    gumbel = -(-uniform(keys, count=scores.shape[1]).log()).log()
    return torch.where((settings.temperatures > 0)[:, None], scores + gumbel, scores)


def _first_best(scores: Scores, ties: Ties) -> RowInts:
    """Return the id of the largest score; `argmax` returns the first of equal ones."""
    if ties == "lowest":
        return scores.argmax(-1)
    return scores.shape[1] - 1 - scores.flip(-1).argmax(-1)
