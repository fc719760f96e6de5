"""A shadow device that starts passes ahead, and checks that nothing in them differs from what the plans turn out to be."""

from dataclasses import replace

from dlstep.core import Plan, PlanAhead, Samples, Span, SpanSamples
from dlstep.testing.sharing import FaultyDriver, FaultySamples


def unmasked(span: Span, before: tuple[Span, SpanSamples] | None, certain: float) -> Span:
    """The span after a device has unmasked by itself what the pass before it decided."""
    if before is None or not before[0].wanted.sampled:
        return span
    sampled, samples, tokens = before[0].wanted.sampled, before[1], list(span.rows.tokens)
    best = samples.probabilities.index(max(samples.probabilities))
    for index, (position, token, probability) in enumerate(zip(sampled, samples.tokens, samples.probabilities, strict=True)):
        if probability >= certain or index == best:
            tokens[position - span.rows.start] = max(token, 0)
    return replace(span, rows=replace(span.rows, tokens=tuple(tokens)))


class AheadDriver(FaultyDriver):
    """A driver that starts every pass ahead that it is given, and counts those that a plan follows."""

    most_rows = 0
    taken = 0
    known: Samples | None = None
    fed: Plan | None = None
    found: tuple[SpanSamples, ...] = ()

    def start_ahead(self, ahead: PlanAhead) -> bool:
        """Run the pass in the memory of the last one."""
        assert self.known is not None and self.known.plan is ahead.before and ahead.plan.step == ahead.before.step + 1
        assert sum(len(span.rows.tokens) for span in ahead.plan.spans) <= self.most_rows
        before = {span.who.seq_id: (span, rows) for span, rows in zip(ahead.before.spans, self.known.spans, strict=True)}
        pairs = zip(ahead.plan.spans, ahead.certain_from, strict=True)
        spans = tuple([unmasked(span, before.get(span.who.seq_id), certain) for span, certain in pairs])
        self.fed = replace(ahead.plan, spans=spans)
        self.found = self.driver._forward(self.fed)
        return True

    def start(self, plan: Plan, owner: int = 0) -> FaultySamples:
        """Start a plan; if a pass ahead of it has run, it must have fed all rows of the plan, with the same result."""
        fed, self.fed = self.fed, None
        continues = self.known is not None and plan.cache_digest == self.known.cache_digest
        pending = super().start(plan, owner)
        self.known = pending.samples
        spans = fed.spans if fed is not None and continues else ()
        ahead = {span.who.seq_id: (span, rows) for span, rows in zip(spans, self.found, strict=bool(spans))}
        if any(span.who.seq_id in ahead for span in plan.spans):  # otherwise, all requests of the pass have ended
            self.taken += 1
            for span, rows in zip(plan.spans, pending.samples.spans, strict=True):
                other, found = ahead[span.who.seq_id]
                if span.who.params.pinned:
                    continue  # a block that pinned tokens fill is stored with the one before it
                assert span.rows == replace(other.rows, final_rows=span.rows.final_rows)
                chosen = [other.wanted.sampled.index(position) for position in span.wanted.sampled]
                assert span.wanted.draws == tuple([other.wanted.draws[index] for index in chosen])
                if chosen and fed.sample_spec == plan.sample_spec:
                    assert rows == found.at(chosen)
        return pending
