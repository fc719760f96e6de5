"""Find the buckets that a strategy needs, from the plans that it makes for random samples."""

from dataclasses import replace

from dlstep_kernels.tiles import TILE_HEIGHT

from ..core import Config, SamplingParams, Strategy
from ..models.networks import PagedNetwork
from .buckets import LEAST_ROWS, MAX_PADDED_ROWS, Bucket, Kind, kind_of, row_sizes, sized
from .lowering import Gathered, LoweringTarget, gather, placed_of
from .tables import CarrySlots, page_tables
from .warmup_plans import warmup_plans

GREEDY, DRAWN = SamplingParams(), SamplingParams(temperature=1.0)


def buckets_for(
    config: Config, strategy: Strategy, network: PagedNetwork, target: LoweringTarget
) -> list[tuple[Gathered, list[Bucket]]]:
    """Return, for each kind that samples, an empty forward pass and its buckets, largest first."""
    met: dict[Kind, Gathered] = {}
    for params in (GREEDY, DRAWN):
        tables, slots = page_tables(config), CarrySlots()
        for plan in warmup_plans(config, strategy, params):
            tables.apply(plan)
            slots.apply(plan)
            if any(span.sampled for span in plan.spans):
                gathered = gather(network.forwards(plan)[-1], tables, target, slots.slots)
                kind, empty = kind_of(gathered), {name: array[:0] for name, array in gathered.arrays.items()}
                idle = replace(gathered, arrays=empty, placed=placed_of(gathered.placed.facts[:, :0], tables, target))
                # In a plan with a long prompt, all spans use tiles of the maximum height.
                met |= {kind: idle, replace(kind, widest=TILE_HEIGHT): idle}
    return [(idle, _sizes(kind, config, network.canvas_length)) for kind, idle in met.items()]


def _sizes(kind: Kind, config: Config, canvas: int) -> list[Bucket]:
    """Return the buckets of a kind, largest first."""
    most = max(config.max_num_batched_tokens, config.max_num_reqs * LEAST_ROWS[kind.widest])
    rows = row_sizes(min(most, MAX_PADDED_ROWS))
    shapes = [(0, spans) for spans in range(config.max_num_reqs, 0, -1)] if canvas else [(count, 1) for count in rows]
    width, size = page_tables(config).pages.shape[1], config.page_size
    buckets = [sized(kind, *shape, longest, canvas, size, width) for longest in (width * size, 1) for shape in shapes]
    return [bucket for bucket in dict.fromkeys(buckets) if bucket.rows <= MAX_PADDED_ROWS]
