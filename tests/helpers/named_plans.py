"""Plans with scored ids, and samples of them."""

from dataclasses import replace

from dlstep.core import Plan, Request, Samples, SampleSpec, SamplingParams, SpanSamples, add, init, schedule
from dlstep.strategies.multi_bd import MultiBD

from .decoding import CONFIG
from .spans import changed

PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)


def plan_of(scored_ids: tuple[int, ...], spec: SampleSpec) -> Plan:
    state = add(init(CONFIG, MultiBD(4, 1)), Request(0, (1, 2, 3, 4), PARAMS))
    plan = schedule(state)
    (span,) = plan.spans
    assert len(span.wanted.sampled) == 4
    return replace(plan, spans=(changed(span, scored_ids=scored_ids),), sample_spec=spec)


def answered(plan: Plan, *scored_ids: float) -> Samples:
    return Samples(plan, (SpanSamples((1,) * 4, (0.5,) * 4, scored_probabilities=scored_ids),))
