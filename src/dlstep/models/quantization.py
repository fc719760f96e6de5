"""Quantize the layers of a loaded network to FP8: weights once, activations in every forward pass."""

import re
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dlstep_kernels import quantize_rows, scaled_linear, supports_fp8

from .experts import SCALES, fits, install_experts, stacked_experts

Quantization = Literal["fp8"]
# Names of decoder layers. Embeddings, head, norms, routers and vision towers keep their dtype.
QUANTIZED = re.compile(r"(?!.*(vision|router)).*\blayers\.\d+\..*")


class QuantizedLinear(nn.Linear):
    """A linear layer with an FP8 weight [out, in], a scale per output [out], and a bias in the network's dtype.

    Annotated with plain tensors, because compilers cannot trace shape checks.
    """

    scales: Tensor
    one: Tensor  # the scale for `torch._scaled_mm`; a buffer, so that no kernel has to create it

    def forward(self, input: Tensor) -> Tensor:
        """Quantize rows [..., in], multiply them by the weight and add the bias: [..., out]."""
        return scaled_linear(input, self.weight, self.scales, self.one, self.bias)


def as_quantized(layer: nn.Linear, scales: Tensor) -> None:
    """Turn a layer whose weight is FP8 into a `QuantizedLinear`, in place, so that it keeps its hooks."""
    layer.__class__ = QuantizedLinear
    layer.register_buffer("scales", scales, persistent=False)
    layer.register_buffer("one", torch.ones((), dtype=torch.float32, device=scales.device), persistent=False)


def check_device(device: torch.device) -> None:
    """Raise ValueError for a device that does not support FP8 products."""
    if not supports_fp8(device):
        raise ValueError(
            f"quantization='fp8' needs a CUDA device of compute capability 8.9 or above, or a CPU, got {device}: use "
            "another device, or leave quantization out"
        )


@torch.no_grad()
def quantize(network: PreTrainedModel) -> None:
    """Quantize the linear layers and experts of the decoder in place, one by one. Tied weights stay tied.

    Raises ValueError for experts that the kernels do not support.
    """
    stacked = stacked_experts(network)
    for module in stacked:
        if not fits(module):
            raise ValueError(
                f"quantization='fp8' is not supported for the experts of {type(network).__name__}: leave quantization out"
            )
    owners: dict[int, list[tuple[nn.Module, str]]] = {}  # the modules that have each weight; tied weights have several
    for name, module in network.named_modules():
        if type(module) is nn.Linear and QUANTIZED.fullmatch(name):
            owners.setdefault(id(module.weight), []).append((module, "weight"))
    for module in stacked:
        for name in SCALES:
            owners.setdefault(id(module.get_parameter(name)), []).append((module, name))
    for key in list(owners):
        _quantize_weight(owners.pop(key))
    install_experts(network)


def _quantize_weight(owners: list[tuple[nn.Module, str]]) -> None:
    """Quantize the weight that these modules share, and free the original."""
    module, name = owners[0]
    weight = module.get_parameter(name)
    codes, scales = quantize_rows(weight.flatten(0, -2))
    quantized = nn.Parameter(codes.view(weight.shape), requires_grad=False)
    scales = scales.view(weight.shape[:-1])
    for module, name in owners:
        setattr(module, name, quantized)
        if isinstance(module, nn.Linear):
            as_quantized(module, scales)
        else:
            module.register_buffer(SCALES[name], scales, persistent=False)
