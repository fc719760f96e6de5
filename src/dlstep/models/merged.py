"""Merge linear layers with the same input into one layer, so that one product replaces several.

With few rows, a device spends its time reading weights, and reads them faster in larger pieces.
Each merged layer becomes a slice of the whole layer. When compiled, the slices share one product;
otherwise, each slice multiplies by its own part of the weight.
"""

from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from .quantization import QuantizedLinear, as_quantized

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # layers with the same input


class Slice(nn.Module):
    """Outputs `start` to `stop` of a linear layer.

    Annotated with plain tensors, because compilers cannot trace shape checks.
    """

    def __init__(self, whole: nn.Linear, start: int, stop: int) -> None:
        super().__init__()
        self.whole = whole
        self.start, self.stop = start, stop

    def forward(self, rows: Tensor) -> Tensor:
        """Return this slice of the product with rows [..., in_features]: [..., stop - start]."""
        part = slice(self.start, self.stop)
        if torch.compiler.is_compiling() or isinstance(self.whole, QuantizedLinear):
            return self.whole(rows)[..., part]
        return nn.functional.linear(rows, self.whole.weight[part], None if self.whole.bias is None else self.whole.bias[part])


def merge_products(network: PreTrainedModel) -> None:
    """Merge layers with the same input. Tied weights stay tied; layers with an adapter are skipped."""
    owners: dict[tuple[int, ...], list[tuple[nn.Module, dict[str, nn.Linear]]]] = {}
    for module in network.modules():
        for names in TOGETHER:
            linear = {name: part for name in names if isinstance(part := getattr(module, name, None), nn.Linear)}
            parts = {name: part for name, part in linear.items() if type(part) in (nn.Linear, QuantizedLinear)}
            if len(parts) > 1 and len({(type(part), part.in_features, part.bias is None) for part in parts.values()}) == 1:
                owners.setdefault(tuple(id(part.weight) for part in parts.values()), []).append((module, parts))
    for key in list(owners):  # one by one, so that only one weight at a time exists twice
        _put(_whole(list(owners[key][0][1].values())), owners.pop(key))


def _put(whole: nn.Linear, owners: list[tuple[nn.Module, dict[str, nn.Linear]]]) -> None:
    """Replace the parts in all owners with slices of the whole layer."""
    for module, parts in owners:
        bounds = pairwise(accumulate((part.out_features for part in parts.values()), initial=0))
        for name, (start, stop) in zip(parts, bounds, strict=True):
            setattr(module, name, Slice(whole, start, stop))


@torch.no_grad()
def _whole(parts: list[nn.Linear]) -> nn.Linear:
    """Return one layer with the concatenated outputs of the parts."""
    first = parts[0]
    whole = nn.Linear(first.in_features, sum(part.out_features for part in parts), bias=first.bias is not None, device="meta")
    whole.weight = nn.Parameter(torch.cat([part.weight for part in parts]), requires_grad=False)
    if first.bias is not None:
        whole.bias = nn.Parameter(torch.cat([part.bias for part in parts]), requires_grad=False)
    if all(isinstance(part, QuantizedLinear) for part in parts):
        as_quantized(whole, torch.cat([part.scales for part in parts if isinstance(part, QuantizedLinear)]))
    return whole
