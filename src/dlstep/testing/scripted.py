"""A driver without a device: a pure function of the span gives its rows."""

import math
from collections.abc import Callable, Sequence

from ..core import (
    NO_SAMPLES,
    Config,
    Plan,
    Request,
    Rule,
    Samples,
    SamplingParams,
    Span,
    SpanSamples,
    Spec,
    Ties,
    add,
    commit,
    init,
    schedule,
)  # fmt: skip
from ..core.draws import key, token_uniform
from ..strategies.dual_cache import DualCache

RowsOf = Callable[[Span], SpanSamples]


class ScriptedDriver:
    """A driver whose samples a function returns; it keeps no state, so any plan is valid.

    Args:
        rows_of: Function from a span that samples to its samples.
    """

    def __init__(self, rows_of: RowsOf) -> None:
        self.rows_of = rows_of

    def run(self, plan: Plan) -> Samples:
        """Return the scripted samples of a plan.

        Args:
            plan: The plan of a forward pass.
        """
        return Samples(plan, tuple(self.rows_of(span) if span.sampled else NO_SAMPLES for span in plan.spans))


def taken(rule: Rule, rows: SpanSamples, seed: int = 0) -> tuple[int, ...]:
    """Return the offsets that `rule` unmasks in the first pass of a block with these `rows`."""
    size, mask = len(rows.tokens), max(rows.tokens) + 1
    strategy = DualCache(block_size=size, cache="none", rule=rule)
    state = init(Config(Spec(mask, (mask + 1,), mask + 2)), strategy)
    state = add(state, Request(0, (0,), SamplingParams(max_tokens=size, seed=seed)))
    sequence = commit(state, ScriptedDriver(lambda span: rows).run(schedule(state))).find(0)
    assert sequence is not None, "a request stays in the state until it is pruned"
    return tuple([offset for offset, token in enumerate(sequence.tokens(1, size + 1)) if token != mask])


def sample_row(
    logits: Sequence[float], span: Span, position: int, draw: int, spec: Spec, ties: Ties = "highest"
) -> tuple[int, float]:
    """Return token and probability of one row, in plain Python: what drivers compute on a device.

    Never samples the mask id or ids past the tokenizer. Temperature 0 is greedy, otherwise
    Gumbel-max with the core's counter-based numbers. Does not apply top-k, top-p or min-p. A
    non-finite row gives (-1, 0.0).
    """
    if not all(math.isfinite(value) for value in logits):
        return -1, 0.0
    temperature = span.params.temperature
    scaled = _scaled(logits, temperature, spec)
    best = max(scaled.values())
    total = sum(math.exp(value - best) for value in scaled.values())
    if temperature:
        stream = key(span.seed, position, draw, "sample")
        token = max(scaled, key=lambda i: scaled[i] - math.log(-math.log(token_uniform(stream, i))))
    else:
        tied = [i for i, value in scaled.items() if value == best]
        token = max(tied) if ties == "highest" else min(tied)
    return token, math.exp(scaled[token] - best) / total


def scored_row(logits: Sequence[float], ids: Sequence[int], temperature: float, spec: Spec) -> tuple[float, ...]:
    """Return the probabilities of `ids` in one row as in `sample_row`; 0.0 if never sampled."""
    if not all(math.isfinite(value) for value in logits):
        return (0.0,) * len(ids)
    scaled = _scaled(logits, temperature, spec)
    best = max(scaled.values())
    total = sum(math.exp(value - best) for value in scaled.values())
    return tuple([math.exp(scaled[i] - best) / total if i in scaled else 0.0 for i in ids])


def _scaled(logits: Sequence[float], temperature: float, spec: Spec) -> dict[int, float]:
    """Return the logits of the allowed ids, divided by the temperature unless it is 0."""
    allowed = {i: value for i, value in enumerate(logits[: spec.vocab_size]) if i != spec.mask_id}
    return {i: value / temperature for i, value in allowed.items()} if temperature else allowed
