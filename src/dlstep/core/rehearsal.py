"""Plans that a strategy makes, found without a device: samples are drawn at random."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from .commit import commit
from .lifecycle import add, farthest, init
from .plan import NO_ROWS, Plan, Rows, Samples, Span
from .request import Request, SamplingParams
from .schedule import schedule
from .sequence import Strategy
from .state import Config

STEPS = 64  # enough to meet what a strategy does at the beginning, within and at the end of blocks


def rehearsed(config: Config, strategy: Strategy, params: SamplingParams) -> Iterator[Plan]:
    """Plans for one request with these parameters and an answer of a few blocks; none if such a request is refused."""
    spec, random = config.spec, Random(0)
    token = next(index for index in range(spec.vocab_size) if index != spec.mask_id)
    block = strategy.atom(Request(0, (token,), replace(params, max_tokens=1)))
    length = max(1, min(4 * block, config.max_model_len - 1))
    pages = -(-farthest(strategy, config.max_model_len) // config.page_size)
    state = init(replace(config, num_pages=pages, max_num_reqs=1), strategy)
    state = add(state, Request(0, (token,), replace(params, max_tokens=length, ignore_eos=True)))
    for _ in range(STEPS):
        if state.done:
            return
        plan = schedule(state)
        yield plan
        state = commit(state, drawn_samples(plan, token, random))


def drawn_samples(plan: Plan, token: int, random: Random) -> Samples:
    """Samples of `plan` that are all `token`, with probabilities from 0 to 1: positions are decided early and late."""
    return Samples(plan, tuple([_rows(span, plan, token, random) if span.wanted else NO_ROWS for span in plan.spans]))


def _rows(span: Span, plan: Plan, token: int, random: Random) -> Rows:
    count, wants = len(span.wanted), plan.wants

    def numbers(many: int) -> tuple[float, ...]:
        return tuple([random.random() for _ in range(many)])

    return Rows(
        tokens=(token,) * count,
        probabilities=numbers(count),
        entropies=numbers(count) if "entropy" in wants.statistics else (),
        margins=numbers(count) if "margin" in wants.statistics else (),
        best_ids=tuple(range(wants.best)) * count,
        best_probabilities=tuple(sorted(numbers(wants.best), reverse=True)) * count,
        noise=(token,) * count if "noise" in wants.statistics else (),
        named_probabilities=numbers(count * span.named_width(wants.named)),
    )
