"""8-bit weights: those that checkpoints store in the format of compressed-tensors, and FP8 layers of a loaded network.

`quantize` quantizes weights once, and activations in every forward pass.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dlstep_kernels import quantize_rows, scaled_linear, supports_fp8

from .layers import SCALES, fits, install_experts, stacked_experts
from .reading import READABLE, Shape, Stored

SCALE = "_scale"  # suffix: the scales of `layer.weight` are `layer.weight_scale`
CODES = ("F8_E4M3", "I8")  # dtypes of quantized weights in files
BLOCK = 128  # rows and columns of a block that has one scale
# Names of decoder layers. Embeddings, head, norms, routers and vision towers keep their dtype.
QUANTIZED = re.compile(r"(?!.*(vision|router)).*\blayers\.\d+\..*")


def is_scale(name: str, tensors: Mapping[str, Stored]) -> bool:
    """Return whether a tensor contains the scales of a quantized weight."""
    of = tensors.get(name.removesuffix(SCALE)) if name.endswith(SCALE) else None
    return of is not None and of.dtype in CODES


def dtype_problems(tensors: Mapping[str, Stored], used: Iterable[str]) -> Iterator[str]:
    """Yield a line for each of the `used` tensors that cannot be read because of its dtype or the shape of its scales."""
    for name in used:
        tensor, scales = tensors[name], tensors.get(name + SCALE)
        if tensor.dtype in READABLE:
            continue
        coded = tensor.dtype in CODES and len(tensor.shape) == 2
        if not coded or scales is None:
            more = f", and {name}{SCALE} is missing" if coded else ""
            yield f"other dtype: {name} is {tensor.dtype}, not one of {', '.join(READABLE)}{more}"
        elif scales.dtype not in READABLE:
            yield f"other dtype: {name}{SCALE} is {scales.dtype}, not one of {', '.join(READABLE)}"
        elif scales.shape not in (shapes := scale_shapes(tensor.shape)):
            allowed = " or ".join(str(list(shape)) for shape in shapes)
            yield f"other shape: {name}{SCALE} has {list(scales.shape)}, expected {allowed}"


def scale_shapes(shape: Shape) -> list[Shape]:
    """Return the allowed shapes of the scales of a weight [out, in]: a single scale, one per output, or one per block."""
    rows, columns = shape
    blocks = (-(-rows // BLOCK), -(-columns // BLOCK))
    return list(dict.fromkeys([(), (1,), (1, 1), (rows,), (rows, 1), blocks]))


def restored(codes: Tensor, scales: Tensor) -> Tensor:
    """Return codes [out, in] times their scales in float32; `scales` has one of the `scale_shapes`."""
    rows, columns = codes.shape
    wide = scales.float()
    if wide.numel() == 1:
        wide = wide.reshape(1, 1)
    elif wide.numel() == rows and wide.shape[-1] in (1, rows):
        wide = wide.reshape(rows, 1)
    else:
        wide = wide.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]
    return codes.float() * wide


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


def check_device(option: str, device: torch.device) -> None:
    """Raise ValueError, naming `option`, if the device does not support FP8."""
    if not supports_fp8(device):
        raise ValueError(
            f"{option}='fp8' needs a CUDA device of compute capability 8.9 or above, or a CPU, got {device}: use "
            f"another device, or leave {option} out"
        )


Owners = list[tuple[nn.Module, str]]  # modules that share a weight, with its name in each of them


def quantized_weights(network: PreTrainedModel) -> dict[int, Owners]:
    """Return the owners of each weight that is quantized, by the `id` of the weight: linear layers and experts of the decoder.

    Raises ValueError for experts that the kernels do not support.
    """
    stacked = stacked_experts(network)
    for module in stacked:
        if not fits(module):
            raise ValueError(
                f"quantization='fp8' is not supported for the experts of {type(network).__name__}: leave quantization out"
            )
    owners: dict[int, Owners] = {}
    for name, module in network.named_modules():
        if type(module) is nn.Linear and QUANTIZED.fullmatch(name):
            owners.setdefault(id(module.weight), []).append((module, "weight"))
    for module in stacked:
        for name in SCALES:
            owners.setdefault(id(module.get_parameter(name)), []).append((module, name))
    return owners


@torch.no_grad()
def quantize(network: PreTrainedModel) -> None:
    """Quantize a network in place, weight by weight. Tied weights stay tied. Raises the errors of `quantized_weights`."""
    owners = quantized_weights(network)
    for key in list(owners):
        module, name = owners[key][0]
        set_quantized(owners.pop(key), *quantize_weight(module.get_parameter(name)))
    install_experts(network)


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return FP8 codes of a weight [..., out, in] and the scales of its rows [..., out]."""
    codes, scales = quantize_rows(weight.flatten(0, -2))
    return codes.view(weight.shape), scales.view(weight.shape[:-1])


def set_quantized(owners: Owners, codes: Tensor, scales: Tensor) -> None:
    """Replace a weight by its codes and scales in all modules that share it."""
    quantized = nn.Parameter(codes, requires_grad=False)
    for module, name in owners:
        setattr(module, name, quantized)
        if isinstance(module, nn.Linear):
            as_quantized(module, scales)
        else:
            module.register_buffer(SCALES[name], scales, persistent=False)
