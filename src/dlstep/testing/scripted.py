"""A driver without a device: a pure function of the span gives its rows."""

from collections.abc import Callable

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
    add,
    commit,
    init,
    schedule,
)  # fmt: skip
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
        return Samples(plan, tuple(self.rows_of(span) if span.wanted.sampled else NO_SAMPLES for span in plan.spans))


def taken(rule: Rule, samples: SpanSamples) -> tuple[int, ...]:
    """Return the offsets that `rule` unmasks in the first pass of a block with these `rows`."""
    size, mask = len(samples.tokens), max(samples.tokens) + 1
    strategy = DualCache(block_size=size, cache="none", rule=rule)
    state = init(Config(Spec(mask, (mask + 1,), mask + 2)), strategy)
    state = add(state, Request(0, (0,), SamplingParams(max_tokens=size)))
    sequence = commit(state, ScriptedDriver(lambda span: samples).run(schedule(state))).find(0)
    assert sequence is not None, "a request stays in the state until it is pruned"
    return tuple(offset for offset, token in enumerate(sequence.tokens(1, size + 1)) if token != mask)
