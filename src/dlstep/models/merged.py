"""Products of the same rows with several weights made one product: a device with few rows to read is busy with the weights,
and reads them faster when there is more to read at once.

Every merged layer is a slice of the whole product. A compiler is shown that its neighbours are slices of the same one, and
computes it once; without a compiler each layer multiplies with its own part of the weight, as before.
"""

from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # names of layers that are given the same rows


class Slice(nn.Module):
    """The outputs `start` to `stop` of a linear layer.

    Compilers trace what is annotated here as plain tensors: they cannot trace a check of shapes.
    """

    def __init__(self, whole: nn.Linear, start: int, stop: int) -> None:
        super().__init__()
        self.whole = whole
        self.start, self.stop = start, stop

    def forward(self, rows: Tensor) -> Tensor:
        """Of the whole product, this part: rows of `width` in, rows of `stop - start` out."""
        part = slice(self.start, self.stop)
        if torch.compiler.is_compiling():
            return self.whole(rows)[..., part]
        return nn.functional.linear(rows, self.whole.weight[part], None if self.whole.bias is None else self.whole.bias[part])


def merge_products(network: PreTrainedModel) -> None:
    """Merge layers of `network` that multiply the same rows. What is shared stays shared, adapted layers stay as they are."""
    owners: dict[tuple[int, ...], list[tuple[nn.Module, dict[str, nn.Linear]]]] = {}
    for module in network.modules():
        for names in TOGETHER:
            parts = {name: part for name in names if type(part := getattr(module, name, None)) is nn.Linear}
            if len(parts) > 1 and len({(part.in_features, part.bias is None) for part in parts.values()}) == 1:
                owners.setdefault(tuple(id(part.weight) for part in parts.values()), []).append((module, parts))
    for key in list(owners):  # one after the other: of one only there is a second copy meanwhile
        _put(_whole(list(owners[key][0][1].values())), owners.pop(key))


def _put(whole: nn.Linear, owners: list[tuple[nn.Module, dict[str, nn.Linear]]]) -> None:
    """Give all owners of the parts slices of the whole in their place."""
    for module, parts in owners:
        bounds = pairwise(accumulate((part.out_features for part in parts.values()), initial=0))
        for name, (start, stop) in zip(parts, bounds, strict=True):
            setattr(module, name, Slice(whole, start, stop))


@torch.no_grad()
def _whole(parts: list[nn.Linear]) -> nn.Linear:
    """One layer that computes what all of these do, one behind the other."""
    first = parts[0]
    whole = nn.Linear(first.in_features, sum(part.out_features for part in parts), bias=first.bias is not None, device="meta")
    whole.weight = nn.Parameter(torch.cat([part.weight for part in parts]), requires_grad=False)
    if first.bias is not None:
        whole.bias = nn.Parameter(torch.cat([part.bias for part in parts]), requires_grad=False)
    return whole
