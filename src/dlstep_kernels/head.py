"""Sample directly from hidden states and the head's weight."""

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from .choice import with_kernel
from .sampling import SIMPLE, Drawn, SamplerConfig, Settings, sample, sampled_by_kernel
from .vocabulary import Share, gather_columns


def _suits(hidden: Tensor, weight: Tensor, settings: Settings, *, sampler: SamplerConfig = SIMPLE, **others: object) -> bool:
    alike = hidden.dtype == weight.dtype and weight.stride(1) == 1 and sampler.cap is None
    return alike and sampled_by_kernel(hidden, settings, sampler=sampler, **others)


@with_kernel("head", suits=_suits)
def head_and_sample(
    hidden: Float[Tensor, "n hidden"],
    weight: Float[Tensor, "vocab hidden"],
    settings: Settings,
    *,
    vocab_size: int,
    mask_id: int | None,
    sampler: SamplerConfig = SIMPLE,
    bias: Float[Tensor, " vocab"] | None = None,
    filled: Int64[Tensor, "1"] | None = None,
    share: Share | None = None,
) -> Drawn:
    """Return `sample` of logits hidden @ weight.T + bias.

    Products are summed in fp32 and logits stay in fp32: rounding them to the head's dtype would
    create ties. The kernel never writes logits to memory.

    Args:
        hidden: Hidden state of each row.
        weight: Weight of the head.
        settings: How to sample each row.
        vocab_size: Number of ids that may be sampled.
        mask_id: Id that is never sampled; None: no such id.
        sampler: Statistics to report.
        bias: Bias of the head.
        filled: Number of rows that count; later rows are undefined. None: all.
        share: This rank's part of weight and bias. All ranks get the result for the whole.
    """
    del filled
    logits = logits_of(hidden, weight, bias)
    if share is not None:
        logits = gather_columns(logits, share)
    return sample.twin(logits, settings, vocab_size=vocab_size, mask_id=mask_id, sampler=sampler)


def logits_of(
    hidden: Float[Tensor, "n hidden"], weight: Float[Tensor, "vocab hidden"], bias: Float[Tensor, " vocab"] | None
) -> Float32[Tensor, "n vocab"]:
    """Return hidden @ weight.T + bias in fp32."""
    logits = _product(hidden, weight)
    return logits if bias is None else logits + bias.float()


def _product(hidden: Float[Tensor, "n hidden"], weight: Float[Tensor, "vocab hidden"]) -> Float32[Tensor, "n vocab"]:
    """Return hidden @ weight.T in fp32."""
    if hidden.is_cuda and hidden.dtype == weight.dtype != torch.float32:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)  # no fp32 copy of the weight
    return hidden.float() @ weight.float().T
