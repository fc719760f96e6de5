"""Compute how many KV cache pages fit into memory."""

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
    """Return how many pages fit into `gib`, or on cuda into `share` of memory besides the network.

    On cuda the memory of activations is measured by running the largest forward passes that
    `config` allows; if forward passes are captured, as much again is reserved for graphs. The
    result is at most what `config.max_num_reqs` requests can use. `config.num_pages` is ignored.
    Raises ValueError with the numbers if not even one request of maximum length fits.
    """
    shapes = kv_shapes(checkpoint.network.config, checkpoint.ranks.size)
    page_bytes = config.page_size * kv_bytes_per_token(shapes, checkpoint.network.dtype)
    least = least_pages(strategy, config.max_model_len, config.page_size)
    if gib is not None:
        room, limit = int(gib * GIB), f"kv_cache_gib={gib}"
    elif checkpoint.network.device.type == "cuda":
        room, limit = room_on_device(checkpoint, config, strategy, share, page_bytes, captures=captures)
    else:
        raise ValueError("num_pages=-1 needs kv_cache_gib on a CPU: set the size of the KV cache in GiB")
    if room < least * page_bytes:
        raise ValueError(
            f"keys and values of one request of max_model_len={config.max_model_len} take {in_gib(least * page_bytes)}, and "
            f"{limit} leaves {in_gib(max(room, 0))}: lower max_model_len or max_num_batched_tokens, or give more memory"
        )
    return min(room // page_bytes, config.max_num_reqs * least)


def room_on_device(
    checkpoint: Checkpoint, config: Config, strategy: Strategy, share: float, page_bytes: int, *, captures: bool
) -> tuple[int, str]:
    """Return the bytes for pages on a CUDA device, and an explanation for error messages."""
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
    return free - int((1 - share) * total) - activations, limit
