"""How many pages of keys and values there is memory for."""

from dataclasses import replace

import torch

from ..core import START_LINE, Config, Plan, Request, SamplingParams, Strategy, add, init, schedule
from ..core.lifecycle import farthest
from ..core.plan import Admission, Grant
from ..models import Checkpoint
from ..models.shapes import GIB, in_gib, kv_bytes_per_token, kv_shapes
from .torch_driver import TorchDriver


def pages_for(
    checkpoint: Checkpoint, config: Config, strategy: Strategy, *, gib: float | None, share: float, captures: bool = True
) -> int:
    """Pages that fit into `gib` of memory, or on a CUDA device into what the network leaves of `share` of its memory.

    What the network needs there besides its weights is measured: the largest forwards that `config` allows are run, and as
    much again is left to graphs where forwards are captured. No more pages are made than all requests that `config` lets run
    at a time can hold. `config.num_pages` is not looked at. Raises ValueError with the numbers if not even one longest request
    fits.
    """
    page_bytes = config.page_size * kv_bytes_per_token(kv_shapes(checkpoint.network.config), checkpoint.network.dtype)
    least = -(-farthest(strategy, config.max_model_len) // config.page_size)
    if gib is not None:
        room, said = int(gib * GIB), f"kv_cache_gib={gib}"
    elif checkpoint.network.device.type == "cuda":
        room, said = _room(checkpoint, config, strategy, share, page_bytes, captures)
    else:
        raise ValueError("num_pages=-1 needs kv_cache_gib on a CPU: say how many GiB keys and values may take")
    if room < least * page_bytes:
        raise ValueError(
            f"keys and values of one request of max_model_len={config.max_model_len} take {in_gib(least * page_bytes)}, and "
            f"{said} leaves {in_gib(max(room, 0))}: lower max_model_len or max_num_batched_tokens, or give more memory"
        )
    return min(room // page_bytes, config.max_num_reqs * least)


def _room(
    checkpoint: Checkpoint, config: Config, strategy: Strategy, share: float, page_bytes: int, captures: bool
) -> tuple[int, str]:
    """Bytes for pages on a CUDA device, and how that came about."""
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
            f"a forward of max_num_batched_tokens={config.max_num_batched_tokens} rows does not fit beside the weights: "
            f"{in_gib(weights)} of {in_gib(total)} are weights, {in_gib(free)} were free; lower max_num_batched_tokens"
        ) from error
    activations = torch.cuda.max_memory_allocated(device) - weights - pages * page_bytes
    if captures:  # graphs have memory of their own, at most what the largest forward takes
        activations *= 2
    torch.cuda.empty_cache()
    said = (
        f"gpu_memory_utilization={share} of {in_gib(total)}, of which {in_gib(total - free)} were taken ({in_gib(weights)} by "
        f"weights) and {in_gib(activations)} are for a forward of {config.max_num_batched_tokens} rows,"
    )
    return free - int((1 - share) * total) - activations, said


def largest_forwards(config: Config, strategy: Strategy) -> tuple[tuple[Plan, Plan], int]:
    """Plans as large as `config` lets one be, the first of prompts, the second of wanted rows; and how many pages they need."""
    spec, budget = config.spec, config.max_num_batched_tokens
    token = next(index for index in range(spec.vocab_size) if index != spec.mask_id)
    atom = strategy.atom(_request(0, (token,), 1))
    length = max(1, min(budget, config.max_model_len) - atom - spec.head_shift)
    deep = max(1, min(config.max_num_reqs, -(-budget // length)))
    pages = deep * -(-farthest(strategy, config.max_model_len) // config.page_size)
    # Equal prompts stand for any: none waits for another one's pages.
    state = init(replace(config, num_pages=pages, enable_prefix_caching=False), strategy)
    for number in range(deep):
        state = add(state, _request(number, (token,) * length, 1))
    wanted, pages_of_wanted = _all_wanted(config, strategy, token)
    most = max(pages, pages_of_wanted)
    return (replace(schedule(state), num_pages=most), replace(wanted, num_pages=most)), most


def _all_wanted(config: Config, strategy: Strategy, token: int) -> tuple[Plan, int]:
    """A plan of as many whole windows as `config` allows, no position of which is decided, and how many pages it needs."""
    spec = config.spec
    request = _request(0, (token,), config.max_model_len - 1)
    roomy = replace(config, num_pages=-(-farthest(strategy, config.max_model_len) // config.page_size))
    (sequence,) = add(init(roomy, strategy), request).waiting
    window = strategy.schedule(sequence, spec)
    if window.mode == "encode":  # it may grow
        start, rows = window.start, min(strategy.atom(request), config.max_model_len)
        wanted = tuple(range(start + spec.head_shift, start + rows))
        tokens = (window.tokens * rows)[:rows]
        window = replace(window, tokens=tokens, end=start + rows, wanted=wanted, draws=(0,) * len(wanted))
    many = max(1, min(config.max_num_reqs, config.max_num_batched_tokens // len(window.tokens)))
    each = -(-window.end // config.page_size)
    plan = Plan(
        step=0,
        line=START_LINE,
        spans=tuple(replace(window, id=number, arrival=number) for number in range(many)),
        wants=strategy.wants,
        admissions=tuple(Admission(number, (), number if strategy.carries else None) for number in range(many)),
        grants=tuple(Grant(number, tuple(range(number * each, (number + 1) * each))) for number in range(many)),
    )
    return plan, many * each


def _request(number: int, prompt: tuple[int, ...], max_tokens: int) -> Request:
    return Request(number, prompt, SamplingParams(max_tokens=max_tokens))
