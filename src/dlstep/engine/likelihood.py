"""Likelihoods of given answers: LLaDA's Monte-Carlo estimate, or exact values by the chain rule.

The estimator masks l of the L tokens of an answer, l uniform in 1..L and each set of l tokens
equally likely, and weighs the log-probabilities of the masked tokens by L/l. Its mean is a lower
bound of the log-likelihood. Source: Nie et al., "Large Language Diffusion Models", 2025, arXiv
2502.09992, and the authors' `get_log_likelihood.py` and `eval_llada.py`.
"""

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import fmean, stdev
from typing import NamedTuple

from ..core import DlstepError, Ids, Positions, PositiveInt, Request, SpanSamples, check_ranges, init
from ..core.request import SamplingParams, Seed
from ..strategies._canvas import Canvas
from ..strategies._verified import Causal
from ..strategies.dual_cache import DualCache
from ..strategies.multi_bd import MultiBD
from ..text.output import LogLikelihood, log_of
from .decode import sampled_passes
from .loader import LoadedEngine
from .reads import Reading

Pairs = list[tuple[Ids, Ids]]  # prompts and answers
PAIRS = 256  # pairs whose likelihoods are computed together
LONGEST_PART = 512  # tokens of an answer that a causal network scores in one forward pass


@dataclass(frozen=True, slots=True)
class MonteCarlo:
    """Settings of the estimator; each batch of samples has mask counts spread over 1..L."""

    num: PositiveInt = 128
    batch: PositiveInt = 32
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.num % self.batch:
            raise ValueError(f"mc_num={self.num} must be a multiple of mc_batch={self.batch}")


class _Query(NamedTuple):
    """One forward pass: the answer to `prompt` with these offsets masked."""

    prompt: Ids
    answer: Ids
    masks: Positions

    @property
    def params(self) -> SamplingParams:
        """Parameters that sample the masked positions; all other positions are pinned."""
        masked = set(self.masks)
        pinned = tuple([(offset, token) for offset, token in enumerate(self.answer) if offset not in masked])
        options = (("labels", tuple([self.answer[offset] for offset in self.masks])),)
        return SamplingParams(max_tokens=len(self.answer), ignore_eos=True, pinned=pinned, strategy_options=options)


class Likelihoods:
    """Likelihoods computed on an engine; `steps` counts the forward passes so far.

    Raises DlstepError, with the remedy, for an engine without a published estimator.
    """

    def __init__(self, engine: LoadedEngine, settings: MonteCarlo = MonteCarlo(), *, greedy: bool = True) -> None:
        strategy, spec = engine.first.strategy, engine.first.config.spec
        causal = isinstance(strategy, Causal)
        self.exact = causal or (isinstance(strategy, MultiBD) and strategy.block_size == 1)
        if not self.exact and not isinstance(strategy, Canvas):
            raise DlstepError(
                f"{engine.name} is decoded by {type(strategy).__name__}, for which no likelihood of a given text is published: "
                "dlstep estimates it on a canvas (decoding_strategy=dual_cache, for networks trained bidirectionally) and "
                "computes it with causal attention (strided, autoregressive) or decoding_strategy=multi_bd,block_size=1; or "
                "choose a task that generates, such as gsm8k"
            )
        if spec.mask_id is None:
            raise DlstepError(f"{engine.name} has no mask id, and likelihoods need one: choose a task that generates")
        reads = Reading(strategy if self.exact else DualCache(cache="none"), feeds_labels=causal)
        # A mask must not see a later token of the answer, so a strategy that feeds masks scores one token per pass.
        self._part = min(LONGEST_PART, engine.first.config.max_num_batched_tokens - spec.head_shift) if causal else 1
        config = replace(engine.first.config, processors=())
        self._engine, self._first, self._settings, self._greedy = engine, init(config, reads), settings, greedy
        self.steps = 0

    def of(self, pairs: Pairs) -> list[LogLikelihood]:
        """Return the likelihood of the answer in each pair (prompt, answer); neither may be empty.

        Forward passes of other threads wait while `PAIRS` pairs are scored. Raises DlstepError for
        a pair that the engine cannot process, for example because it is too long.
        """
        longest = self._first.config.max_model_len
        for prompt, answer in pairs:
            if len(prompt) + len(answer) > longest:
                raise DlstepError(
                    f"a prompt of {len(prompt)} tokens and an answer of {len(answer)} are longer than max_model_len={longest}: "
                    "shorten them, or raise it"
                )
        measured, some = self._exactly if self.exact else self._estimated, range(0, len(pairs), PAIRS)
        return [each for first in some for each in measured(pairs[first : first + PAIRS])]

    def _exactly(self, pairs: Pairs) -> list[LogLikelihood]:
        """Return exact values by the chain rule. Requests share the pages of their prefixes."""
        size = self._part
        parts = [(*pair, at) for pair in pairs for at in range(0, len(pair[1]), size)]
        queries = [(prompt + answer[:at], answer[at : at + size]) for prompt, answer, at in parts]
        rows = iter(self._rows([_Query(*query, tuple(range(len(query[1])))) for query in queries]))
        likelihoods: list[LogLikelihood] = []
        for _, answer in pairs:
            own = [next(rows) for _ in range(0, len(answer), size)]
            value = sum([log_of(probability) for row in own for probability in row.scored_probabilities])
            best = tuple([token for row in own for token in row.tokens])
            likelihoods.append(LogLikelihood(value, "exact", greedy=best == answer))
        return likelihoods

    def _estimated(self, pairs: Pairs) -> list[LogLikelihood]:
        """Return means of the weighted samples. Equal masks of an answer are computed once."""
        drawn = [masks_of(len(answer), self._settings, (prompt, answer)) for prompt, answer in pairs]
        queries = dict.fromkeys(_Query(*pair, masks) for pair, own in zip(pairs, drawn, strict=True) for masks in own)
        rows = dict(zip(queries, self._rows([*queries]), strict=True))
        greedy = self._greedily(pairs, rows) if self._greedy else [None] * len(pairs)
        likelihoods: list[LogLikelihood] = []
        for pair, masks, same in zip(pairs, drawn, greedy, strict=True):
            logs = {own: sum(map(log_of, rows[_Query(*pair, own)].scored_probabilities)) for own in set(masks)}
            value, error = estimate(len(pair[1]), masks, logs, self._settings.batch)
            likelihoods.append(LogLikelihood(value, "monte_carlo", error, same))
        return likelihoods

    def _greedily(self, pairs: Pairs, rows: dict[_Query, SpanSamples]) -> list[bool]:
        """Return whether greedy decoding gives each answer; stop at the first difference."""
        left = {number: tuple(range(len(answer))) for number, (_, answer) in enumerate(pairs)}
        same = [True] * len(pairs)
        while left:
            queries = {number: _Query(*pairs[number], masks) for number, masks in left.items()}
            missing = [query for query in dict.fromkeys(queries.values()) if query not in rows]
            rows |= dict(zip(missing, self._rows(missing), strict=True))
            for number, query in queries.items():
                samples, masks = rows[query], query.masks
                best = max(range(len(masks)), key=samples.probabilities.__getitem__)
                same[number] = samples.tokens[best] == query.answer[masks[best]]
                left[number] = masks[:best] + masks[best + 1 :] if same[number] else ()
            left = {number: masks for number, masks in left.items() if masks}
        return same

    def _rows(self, queries: list[_Query]) -> list[SpanSamples]:
        """Return the samples of each pass. Run them in one turn: passes of other states would replace the KV cache."""
        requests = [Request(number, query.prompt, query.params) for number, query in enumerate(queries)]
        found, steps = self._engine.turn.run(partial(sampled_passes, self._first, self._engine.driver, requests))
        self.steps += steps
        return [found[number, 0][1] for number in range(len(queries))]


def masks_of(length: int, settings: MonteCarlo, pair: object) -> list[Positions]:
    """Return the masked offsets of each sample; mask counts of a batch are evenly spaced.

    The masks depend on the seed, the prompt and the answer, not on other requests. Mask counts are
    uniform, as in the paper. The released code rounds halves to even numbers, so it draws even
    numbers up to three times as often.
    """
    random, masks = Random(f"{settings.seed} {pair}"), list[Positions]()
    for _ in range(settings.num // settings.batch):
        first = random.random() * length
        counts = [int(first + number * length / settings.batch) % length + 1 for number in range(settings.batch)]
        masks += [tuple(sorted(random.sample(range(length), count))) for count in counts]
    return masks


def estimate(length: int, masks: list[Positions], logs: dict[Positions, float], batch: int) -> tuple[float, float | None]:
    """Return the estimate and its standard error between batches, whose samples are dependent.

    `logs` holds, for each set of masks, the sum of the log-probabilities of the masked tokens.
    """
    weighed = [length / len(own) * logs[own] for own in masks]
    means = [fmean(weighed[first : first + batch]) for first in range(0, len(weighed), batch)]
    return fmean(means), stdev(means) / len(means) ** 0.5 if len(means) > 1 else None
