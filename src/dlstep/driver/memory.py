"""How many pages of keys and values there is memory for."""

from dataclasses import replace

import torch

from ..core import Config, Strategy, least_pages
from ..models import Checkpoint
from ..models.shapes import GIB, in_gib, kv_bytes_per_token, kv_shapes
from .torch_driver import TorchDriver
from .warmup_plans import largest_forwards


def pages_for(
    checkpoint: Checkpoint, config: Config, strategy: Strategy, *, gib: float | None, share: float, captures: bool = True
) -> int:
    """Pages that fit into `gib` of memory, or on a CUDA device into what the network leaves of `share` of its memory.

    What the network needs there besides its weights is measured: the largest forwards that `config` allows are run, and as
    much again is left to graphs where forwards are captured. No more pages are made than all requests that `config` lets run
    at a time can hold. `config.num_pages` is not looked at. Raises ValueError with the numbers if not even one longest request
    fits.
    """
    shapes = kv_shapes(checkpoint.network.config, checkpoint.ranks.size)
    page_bytes = config.page_size * kv_bytes_per_token(shapes, checkpoint.network.dtype)
    least = least_pages(strategy, config.max_model_len, config.page_size)
    if gib is not None:
        room, said = int(gib * GIB), f"kv_cache_gib={gib}"
    elif checkpoint.network.device.type == "cuda":
        room, said = room_on_device(checkpoint, config, strategy, share, page_bytes, captures=captures)
    else:
        raise ValueError("num_pages=-1 needs kv_cache_gib on a CPU: say how many GiB keys and values may take")
    if room < least * page_bytes:
        raise ValueError(
            f"keys and values of one request of max_model_len={config.max_model_len} take {in_gib(least * page_bytes)}, and "
            f"{said} leaves {in_gib(max(room, 0))}: lower max_model_len or max_num_batched_tokens, or give more memory"
        )
    return min(room // page_bytes, config.max_num_reqs * least)


def room_on_device(
    checkpoint: Checkpoint, config: Config, strategy: Strategy, share: float, page_bytes: int, *, captures: bool
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
    free, _ = torch.cuda.mem_get_info(device)  # forwards keep memory that torch does not count: sums of ranks, NCCL
    said = (
        f"gpu_memory_utilization={share} of {in_gib(total)}, of which {in_gib(total - free)} were taken ({in_gib(weights)} by "
        f"weights) and {in_gib(activations)} are for a forward of {config.max_num_batched_tokens} rows,"
    )
    return free - int((1 - share) * total) - activations, said
