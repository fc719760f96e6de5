"""Sampling straight from hidden states and the weight of the head that makes logits of them."""

from typing import Any

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from .choice import with_kernel
from .sampling import SIMPLE, Drawn, SamplerConfig, Settings, sample, sampled_by_kernel
from .vocabulary import Share, sample_cut


def _suits(
    hidden: Tensor,
    weight: Tensor,
    settings: Settings,
    *,
    vocab_size: int,
    mask_id: int | None,
    sampler: SamplerConfig = SIMPLE,
    bias: Tensor | None = None,
    softcap: float | None = None,
    filled: Tensor | None = None,
    share: Share | None = None,
) -> bool:
    del bias, softcap, filled, share
    alike = hidden.dtype == weight.dtype and weight.stride(1) == 1
    return alike and sampled_by_kernel(hidden, settings, vocab_size=vocab_size, mask_id=mask_id, sampler=sampler)


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
    softcap: float | None = None,
    filled: Int64[Tensor, "1"] | None = None,
    share: Share | None = None,
) -> Drawn:
    """`sample` of the logits `hidden @ weight.T + bias`, which `softcap` c bends to `c * tanh(logits / c)`.

    Products are summed in fp32 and the logits stay in fp32: a head that rounds them to its own dtype makes ties, this one
    does not. Answers of rows from `filled` on may be anything; None: there are none. The kernel never writes the logits.
    Ranks of which each has a `share` of the weight, and of the bias, all get the answer for the whole.
    """
    del filled
    logits = logits_of(hidden, weight, bias)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if share is not None:
        facts: Any = {"vocab_size": vocab_size, "mask_id": mask_id, "sampler": sampler}
        return sample_cut(logits, settings, share.cut, share.exchange, **facts)
    return sample.twin(logits, settings, vocab_size=vocab_size, mask_id=mask_id, sampler=sampler)


def logits_of(
    hidden: Float[Tensor, "n hidden"], weight: Float[Tensor, "vocab hidden"], bias: Float[Tensor, " vocab"] | None
) -> Float32[Tensor, "n vocab"]:
    """hidden @ weight.T + bias in fp32."""
    logits = _product(hidden, weight)
    return logits if bias is None else logits + bias.float()


def _product(hidden: Float[Tensor, "n hidden"], weight: Float[Tensor, "vocab hidden"]) -> Float32[Tensor, "n vocab"]:
    """hidden @ weight.T in fp32."""
    if hidden.is_cuda and hidden.dtype == weight.dtype != torch.float32:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)  # without a copy of the weight in fp32
    return hidden.float() @ weight.float().T
