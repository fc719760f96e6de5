"""Plans made without a device: of every kind, to capture graphs, and the largest, for memory."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from ..core import (
    EMPTY_CACHE,
    NO_SAMPLES,
    Admission,
    Config,
    Grant,
    Plan,
    Samples,
    SamplingParams,
    Span,
    SpanSamples,
    Strategy,
    add,
    commit,
    init,
    least_pages,
    probe,
    schedule,
)

STEPS = 64  # enough to reach the beginning, middle and end of blocks


def warmup_plans(config: Config, strategy: Strategy, params: SamplingParams) -> Iterator[Plan]:
    """Yield the plans of one request with an answer of a few blocks; none if it is rejected."""
    random, short = Random(0), probe(config.spec, replace(params, max_tokens=1))
    length = max(1, min(4 * strategy.atom(short), config.max_model_len - 1))
    pages = least_pages(strategy, config.max_model_len, config.page_size)
    state = init(replace(config, num_pages=pages, max_num_reqs=1), strategy)
    state = add(state, replace(short, params=replace(params, max_tokens=length, ignore_eos=True)))
    for _ in range(STEPS):
        if state.done:
            return
        plan = schedule(state)
        yield plan
        state = commit(state, drawn_samples(plan, short.prompt[0], random))


def drawn_samples(plan: Plan, token: int, random: Random) -> Samples:
    """Return samples that are all `token`, with random probabilities to unmask early and late."""
    return Samples(
        plan, tuple([_rows(span, plan, token, random) if span.sampled else NO_SAMPLES for span in plan.spans]), checked=True
    )


def _rows(span: Span, plan: Plan, token: int, random: Random) -> SpanSamples:
    count, spec = len(span.sampled), plan.sample_spec

    def numbers(many: int) -> tuple[float, ...]:
        return tuple([random.random() for _ in range(many)])

    return SpanSamples(
        tokens=(token,) * count,
        probabilities=numbers(count),
        entropies=numbers(count) if "entropy" in spec.statistics else (),
        margins=numbers(count) if "margin" in spec.statistics else (),
        best_ids=tuple(range(spec.best)) * count,
        best_probabilities=tuple(sorted(numbers(spec.best), reverse=True)) * count,
        noise=(token,) * count if "noise" in spec.statistics else (),
        scored_probabilities=numbers(count * span.scored_width(spec.scored)),
    )


def largest_forwards(config: Config, strategy: Strategy) -> tuple[tuple[Plan, Plan], int]:
    """Return the largest plans, of prompts and of sampled rows, and the pages that they need."""
    spec, budget = config.spec, config.max_num_batched_tokens
    short = probe(spec)
    length = max(1, min(budget, config.max_model_len) - strategy.atom(short) - spec.head_shift)
    deep = max(1, min(config.max_num_reqs, -(-budget // length)))
    pages = deep * least_pages(strategy, config.max_model_len, config.page_size)
    # The prompts are equal, so prefix caching is off: no request waits for another's pages.
    state = init(replace(config, num_pages=pages, enable_prefix_caching=False), strategy)
    for number in range(deep):
        state = add(state, replace(short, id=number, prompt=short.prompt * length))
    sampling, sampling_pages = _all_sampled(config, strategy)
    most = max(pages, sampling_pages)
    return (replace(schedule(state), num_pages=most), replace(sampling, num_pages=most)), most


def _all_sampled(config: Config, strategy: Strategy) -> tuple[Plan, int]:
    """Return a plan of as many masked windows as possible, and the pages that it needs."""
    spec = config.spec
    request = probe(spec, SamplingParams(max_tokens=config.max_model_len - 1))
    roomy = replace(config, num_pages=least_pages(strategy, config.max_model_len, config.page_size))
    (sequence,) = add(init(roomy, strategy), request).waiting
    window = strategy.schedule(sequence, spec)
    if window.mode == "encode":  # may grow to a whole block: take that size
        start, rows = window.start, min(strategy.atom(request), config.max_model_len)
        after = window.sampled[-1] >= window.stop  # whether it samples the position after its rows
        sampled = tuple(range(start + window.row_shift(spec.head_shift), start + rows + after))
        tokens = ((window.tokens or request.prompt) * rows)[:rows]
        window = replace(window, tokens=tokens, end=start + rows, sampled=sampled, draws=(0,) * len(sampled))
    count = max(1, min(config.max_num_reqs, config.max_num_batched_tokens // len(window.tokens)))
    pages = -(-window.end // config.page_size)
    plan = Plan(
        step=0,
        cache_digest=EMPTY_CACHE,
        spans=tuple(replace(window, id=number, seq_id=number) for number in range(count)),
        sample_spec=strategy.sample_spec,
        admissions=tuple(Admission(number, (), number if strategy.carries else None) for number in range(count)),
        grants=tuple(Grant(number, tuple(range(number * pages, (number + 1) * pages))) for number in range(count)),
    )
    return plan, count * pages
