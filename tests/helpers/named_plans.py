"""Plans of a rule that names ids, and answers to them."""

from dataclasses import replace

from dlstep.core import Config, Plan, Request, Rows, Samples, SamplingParams, Spec, Wants, add, init, schedule
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import EOS, MASK, VOCABULARY

SPEC = Spec(MASK, (EOS,), VOCABULARY)
CONFIG = Config(SPEC, page_size=4, num_pages=64, max_model_len=64, max_num_batched_tokens=256, max_num_reqs=8)
ASKED = SamplingParams(max_tokens=12, ignore_eos=True)


def plan_of(named: tuple[int, ...], wants: Wants) -> Plan:
    state = add(init(CONFIG, MultiBD(4, 1)), Request(0, (1, 2, 3, 4), ASKED))
    plan = schedule(state)
    (span,) = plan.spans
    assert len(span.wanted) == 4
    return replace(plan, spans=(replace(span, named=named),), wants=wants)


def answered(plan: Plan, *named: float) -> Samples:
    return Samples(plan, (Rows((1,) * 4, (0.5,) * 4, named_probabilities=named),))
