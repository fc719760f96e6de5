"""Which of two ways a function goes: its Triton kernel, on a device that has one, or its twin in plain torch.

The twins define the answers. A kernel is imported when it is first needed, so that torch alone is enough elsewhere.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from . import experts, head, mean, merge, routing, sampling
from .experts import Activation
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
    filled: Int64[Tensor, "1"] | None = None,
) -> Drawn:
    """The same from hidden states of the wanted rows, as `head` says; the kernel never writes the logits.

    Answers of rows from `filled` on may be anything; None: there are none.
    """
    given: dict[str, Any] = {"vocab_size": vocab_size, "mask_id": mask_id, "reading": reading, "bias": bias, "softcap": softcap}
    alike = hidden.dtype == weight.dtype and weight.stride(1) == 1
    if alike and has_kernels(hidden.device) and sampled_by_kernel(settings, reading):
        from .gpu import head as kernels

        return kernels.head_and_sample(hidden, weight, settings, filled=filled, **given)
    return head.head_and_sample(hidden, weight, settings, **given)


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


def mix_experts(
    hidden: Float[Tensor, "n hidden"],
    chosen: Int64[Tensor, "n k"],
    weights: Float[Tensor, "n k"],
    gate_up: Float[Tensor, "experts twice_inner hidden"],
    down: Float[Tensor, "experts hidden inner"],
    *,
    activation: Activation,
) -> Float[Tensor, "n hidden"]:
    """Output of the experts chosen for each row, as `experts` says."""
    alike = hidden.dtype == gate_up.dtype == down.dtype and gate_up.is_contiguous() and down.is_contiguous()
    answer = experts.mix_experts
    if alike and has_kernels(hidden.device):
        from .gpu import experts as kernels

        answer = kernels.mix_experts
    return answer(hidden, chosen, weights, gate_up, down, activation=activation)


def choose_experts(
    hidden: Float[Tensor, "n width"],
    weight: Float[Tensor, "experts width"],
    bias: Float[Tensor, " experts"],
    *,
    groups: int,
    kept_groups: int,
    count: int,
    normalised: bool,
    scale: float,
) -> tuple[Int64[Tensor, "n count"], Float32[Tensor, "n count"]]:
    """The experts of each row, best first, and their weights, as `routing` says."""
    given: dict[str, Any] = {"groups": groups, "kept_groups": kept_groups, "count": count, "normalised": normalised}
    if hidden.dtype == weight.dtype and weight.stride(1) == 1 and has_kernels(hidden.device):
        from .gpu import routing as kernels

        return kernels.choose_experts(hidden, weight, bias, scale=scale, **given)
    return routing.choose_experts(hidden, weight, bias, scale=scale, **given)
