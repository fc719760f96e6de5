"""Compute how many KV cache pages fit into memory."""

from dataclasses import replace

import torch

from ..core import (
    EMPTY_CACHE,
    Admission,
    Config,
    Grant,
    Plan,
    SamplingParams,
    Strategy,
    add,
    init,
    least_pages,
    probe,
    schedule,
)
from ..models import Checkpoint
from ..models.shapes import GIB, in_gib, kv_bytes_per_token, kv_shapes
from .torch_driver import TorchDriver


def pages_for(
    checkpoint: Checkpoint, config: Config, strategy: Strategy, *, gib: float | None, share: float, captures: bool = True
) -> int:
    """Return how many pages fit into `gib`, or on cuda into `share` of memory besides the network.

    On cuda the memory of activations is measured by running the largest forward passes that
    `config` allows; if forward passes are captured, as much again is reserved for graphs. The
    result is at most what `config.max_num_reqs` requests can use. `config.num_pages` is ignored.
    Raises ValueError with the numbers if not even one request of maximum length fits.
    """
    shapes = kv_shapes(checkpoint.network.config, checkpoint.ranks.size)
    page_bytes = config.page_size * kv_bytes_per_token(shapes, checkpoint.kv_dtype)
    least = least_pages(strategy, config.max_model_len, config.page_size)
    longest = least * page_bytes
    if gib is not None:
        room, limit = int(gib * GIB), f"kv_cache_gib={gib}"
    elif checkpoint.network.device.type == "cuda":
        room, limit = room_on_device(checkpoint, config, strategy, share, page_bytes, longest, captures=captures)
    else:
        raise ValueError("num_pages=-1 and gpu_memory_utilization need cuda: on a CPU give kv_cache_gib instead")
    if room < longest:
        raise ValueError(
            f"keys and values of one request of max_model_len={config.max_model_len} take {in_gib(longest)}, and "
            f"{limit} leaves {in_gib(max(room, 0))}: lower max_model_len or max_num_batched_tokens, or give more memory. If "
            "another LLM uses the device, give that one a lower gpu_memory_utilization"
        )
    return min(room // page_bytes, config.max_num_reqs * least)


def room_left(total: int, free: int, share: float, forward: int, longest: int) -> int:
    """Return the bytes for the KV cache, of `free` bytes on a device of `total` bytes.

    Args:
        total: Bytes of memory of the device.
        free: Bytes that are free once the weights are loaded.
        share: Share of the memory that may be in use.
        forward: Bytes to keep for forward passes.
        longest: Bytes of the keys and values of one request of `max_model_len`. As many bytes stay free
            for a session, unless the KV cache would then be too small for one such request.
    """
    spare = int((1 - share) * total)
    room = free - spare - forward
    return max(room - max(longest - spare, 0), min(room, longest))


def room_on_device(
    checkpoint: Checkpoint, config: Config, strategy: Strategy, share: float, page_bytes: int, longest: int, *, captures: bool
) -> tuple[int, str]:
    """Return the bytes for pages on a CUDA device, and an explanation for error messages. `longest` is as for `room_left`."""
    device = checkpoint.network.device
    torch.cuda.empty_cache()
    weights = torch.cuda.memory_allocated(device)
    free, total = torch.cuda.mem_get_info(device)
    torch.cuda.reset_peak_memory_stats(device)
    plans, pages = largest_forwards(config, strategy)
    try:
        for plan in plans:
            TorchDriver(checkpoint, replace(config, num_pages=pages), enforce_eager=True).run(plan)
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"a forward pass of max_num_batched_tokens={config.max_num_batched_tokens} rows does not fit with the weights: "
            f"{in_gib(weights)} of {in_gib(total)} are weights, {in_gib(free)} were free; lower max_num_batched_tokens"
        ) from error
    activations = torch.cuda.max_memory_allocated(device) - weights - pages * page_bytes
    if captures:  # graphs have separate memory, at most as much as the largest pass
        activations *= 2
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)  # torch does not count all memory, e.g. NCCL's
    limit = (
        f"gpu_memory_utilization={share} of {in_gib(total)}, of which {in_gib(total - free)} were taken ({in_gib(weights)} by "
        f"weights) and {in_gib(activations)} are for a forward pass of {config.max_num_batched_tokens} rows,"
    )
    return room_left(total, free, share, activations, longest), limit


def largest_forwards(config: Config, strategy: Strategy) -> tuple[tuple[Plan, Plan], int]:
    """Return the largest plans, of prompts and of sampled rows, and the pages that they need."""
    spec, budget = config.spec, config.max_num_batched_tokens
    short = probe(spec)
    length = max(1, min(budget, config.max_model_len) - strategy.rows_at_once(short) - spec.head_shift)
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
    # A canvas may be as long as the answer, and must fit into one forward pass.
    longest = min(config.max_model_len, config.max_num_batched_tokens - spec.head_shift)
    request = probe(spec, SamplingParams(max_tokens=max(1, longest - 1)))
    roomy = replace(config, num_pages=least_pages(strategy, config.max_model_len, config.page_size))
    (sequence,) = add(init(roomy, strategy), request).waiting
    window = strategy.schedule(sequence, spec)
    if window.rows.mode == "encode":  # may grow to a whole block: take that size
        start, rows = window.rows.start, min(strategy.rows_at_once(request), config.max_model_len)
        after = window.wanted.sampled[-1] >= window.rows.stop  # whether it samples the position after its rows
        sampled = tuple(range(start + window.wanted.row_shift(spec.head_shift), start + rows + after))
        tokens = ((window.rows.tokens or request.prompt) * rows)[:rows]
        wanted = replace(window.wanted, sampled=sampled, draws=(0,) * len(sampled))
        window = replace(window, rows=replace(window.rows, tokens=tokens, end=start + rows), wanted=wanted)
    count = max(1, min(config.max_num_reqs, config.max_num_batched_tokens // len(window.rows.tokens)))
    pages = -(-window.rows.end // config.page_size)
    plan = Plan(
        step=0,
        cache_digest=EMPTY_CACHE,
        spans=tuple(replace(window, who=replace(window.who, id=number, seq_id=number)) for number in range(count)),
        sample_spec=strategy.sample_spec,
        admissions=tuple(Admission(number, (), number if strategy.carries else None) for number in range(count)),
        grants=tuple(Grant(number, tuple(range(number * pages, (number + 1) * pages))) for number in range(count)),
    )
    return plan, count * pages
