"""Find the buckets that a strategy needs, from the plans that it makes for random samples."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from dlstep_kernels.tiles import TILE_HEIGHT

from ..core import (
    NO_SAMPLES,
    Config,
    Json,
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
from ..models.networks import PagedNetwork
from .buckets import LEAST_ROWS, MAX_PADDED_ROWS, Bucket, Kind, forward_kind, row_sizes, sized
from .lowering import Gathered, LoweringTarget, gather, placed_rows
from .tables import PageTables

GREEDY, DRAWN = SamplingParams(), SamplingParams(temperature=1.0)
STEPS = 64  # enough to reach the beginning, middle and end of blocks


def warmup_plans(config: Config, strategy: Strategy, params: SamplingParams) -> Iterator[Plan]:
    """Yield the plans of one request with an answer of a few blocks; none if it is rejected."""
    random, short = Random(0), probe(config.spec, replace(params, max_tokens=1))
    length = max(1, min(4 * strategy.rows_at_once(short), config.max_model_len - 1))
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
        plan,
        tuple([_rows(span, plan, token, random) if span.wanted.sampled else NO_SAMPLES for span in plan.spans]),
        checked=True,
    )


def _rows(span: Span, plan: Plan, token: int, random: Random) -> SpanSamples:
    count, spec = len(span.wanted.sampled), plan.sample_spec

    def numbers(many: int) -> tuple[float, ...]:
        return tuple([random.random() for _ in range(many)])

    widths = spec.widths(span.wanted.scored_width)
    fields: Json = {name: numbers(count * width) for name, width in widths.items()}
    fields["best_ids"] = tuple(range(spec.best)) * count
    fields["best_probabilities"] = tuple(sorted(numbers(spec.best), reverse=True)) * count
    fields["noise"] = (token,) * count * widths["noise"]
    return SpanSamples((token,) * count, numbers(count), **fields)


def buckets_for(
    config: Config, strategy: Strategy, network: PagedNetwork, target: LoweringTarget
) -> list[tuple[Gathered, list[Bucket]]]:
    """Return, for each kind that samples, an empty forward pass and its buckets, largest first."""
    met: dict[Kind, Gathered] = {}
    for params in (GREEDY, DRAWN):
        tables = PageTables(config)
        for plan in warmup_plans(config, strategy, params):
            tables.apply(plan)
            if any(span.wanted.sampled for span in plan.spans):
                gathered = gather(network.forwards(plan)[-1], tables, target)
                kind, empty = forward_kind(gathered), {name: array[:0] for name, array in gathered.arrays.items()}
                idle = replace(gathered, arrays=empty, placed=placed_rows([], tables, target))
                # In a plan with a long prompt, all spans use tiles of the maximum height.
                met |= {kind: idle, replace(kind, widest=TILE_HEIGHT): idle}
    return [(idle, _sizes(kind, config, network.canvas_length)) for kind, idle in met.items()]


def _sizes(kind: Kind, config: Config, canvas: int) -> list[Bucket]:
    """Return the buckets of a kind, largest first."""
    most = max(config.max_num_batched_tokens, config.max_num_reqs * LEAST_ROWS[kind.widest])
    rows = row_sizes(min(most, MAX_PADDED_ROWS))
    shapes = [(0, spans) for spans in range(config.max_num_reqs, 0, -1)] if canvas else [(count, 1) for count in rows]
    width, size = PageTables(config).pages.shape[1], config.page_size
    buckets = [sized(kind, *shape, longest, canvas, size, width) for longest in (width * size, 1) for shape in shapes]
    return [bucket for bucket in dict.fromkeys(buckets) if bucket.rows <= MAX_PADDED_ROWS]
