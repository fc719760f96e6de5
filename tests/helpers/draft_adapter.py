"""A LoRA adapter for drafts with random numbers, in the files that peft writes."""

from pathlib import Path

import torch
from torch import nn

from .files import save_adapter

SCALE, RANK = 4.0, 2


def write_draft_adapter(
    folder: Path, network: nn.Module, *, layers: str = "model.layers"
) -> list[tuple[nn.Module, torch.Tensor]]:
    """Write an adapter of every `o_proj` of the network; return these modules and the updates of their weights.

    `layers` is the checkpoint's name of the list of layers.
    """
    generator, tensors = torch.Generator().manual_seed(1), {}
    updates: list[tuple[nn.Module, torch.Tensor]] = []
    for name, module in network.named_modules():
        if name.endswith("o_proj"):
            rows, columns = module.get_parameter("weight").shape
            a, b = (torch.randn(shape, generator=generator) * 0.3 for shape in ((RANK, columns), (rows, RANK)))
            updates.append((module, SCALE * b @ a))
            stored = name.replace("model.layers", layers)
            tensors |= {f"{stored}.lora_A.weight": a, f"{stored}.lora_B.weight": b}
    save_adapter(folder, tensors, RANK, int(SCALE * RANK), ["o_proj"])
    return updates
