"""Which of two ways a function goes: its Triton kernel, on a device that has one, or its twin in plain torch.

The twins define the answers. A kernel is imported when it is first needed, so that torch alone is enough elsewhere.
"""

from functools import cache
from importlib.util import find_spec

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from . import head, mean, merge, sampling
from .merge import SoftRows
from .sampling import SIMPLE, Drawn, Reading, Settings

MOST_BEST = 8  # most probable ids that a kernel lists


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether kernels run on `device`: a CUDA device of compute capability 8.0 or more, and triton installed."""
    return device.type == "cuda" and find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (8, 0)


def sampled_by_kernel(settings: Settings, reading: Reading) -> bool:
    """Whether kernels cover what is asked: filters need all logits of a row in order, which the twin sorts."""
    filtered = settings.top_k is not None or settings.top_p is not None or settings.min_p is not None
    return not filtered and reading.best <= MOST_BEST and (settings.temperatures is None or settings.noise is not None)


def sample(
    logits: Float[Tensor, "n vocab"],
    settings: Settings,
    *,
    vocab_size: int,
    mask_id: int | None,
    reading: Reading = SIMPLE,
) -> Drawn:
    """One token of each row's distribution, its probability there and the statistics asked for, as `sampling` says."""
    if has_kernels(logits.device) and sampled_by_kernel(settings, reading):
        from .gpu import sampling as kernels

        return kernels.sample(logits, settings, vocab_size=vocab_size, mask_id=mask_id, reading=reading)
    return sampling.sample(logits, settings, vocab_size=vocab_size, mask_id=mask_id, reading=reading)


def head_and_sample(
    hidden: Float[Tensor, "n hidden"],
    weight: Float[Tensor, "vocab hidden"],
    settings: Settings,
    *,
    vocab_size: int,
    mask_id: int | None,
    reading: Reading = SIMPLE,
    bias: Float[Tensor, " vocab"] | None = None,
    softcap: float | None = None,
) -> Drawn:
    """The same from hidden states of the wanted rows, as `head` says; the kernel never writes the logits."""
    alike = hidden.dtype == weight.dtype and weight.stride(1) == 1
    answer = head.head_and_sample
    if alike and has_kernels(hidden.device) and sampled_by_kernel(settings, reading):
        from .gpu import head as kernels

        answer = kernels.head_and_sample
    return answer(hidden, weight, settings, vocab_size=vocab_size, mask_id=mask_id, reading=reading, bias=bias, softcap=softcap)


def merge_embeddings(
    embedded: Float[Tensor, "n width"], table: Float[Tensor, "vocab width"], mask_id: int, soft: SoftRows
) -> Float[Tensor, "n width"]:
    """`embedded` with its soft rows replaced by their blends, as `merge` says."""
    if has_kernels(embedded.device):
        from .gpu import merge as kernels

        return kernels.merge_embeddings(embedded, table, mask_id, soft)
    return merge.merge_embeddings(embedded, table, mask_id, soft)


def mean_embeddings(
    logits: Float[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"], table: Float[Tensor, "vocab width"]
) -> Float[Tensor, "n width"]:
    """The mean of `table` under each row's distribution, as `mean` says."""
    if has_kernels(logits.device):
        from .gpu import mean as kernels

        return kernels.mean_embeddings(logits, temperatures, table)
    return mean.mean_embeddings(logits, temperatures, table)
