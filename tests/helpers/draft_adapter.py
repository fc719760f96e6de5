"""A LoRA adapter for drafts with random numbers, in the files that peft writes."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

SCALE, RANK = 4.0, 2


def write_draft_adapter(
    folder: Path, network: nn.Module, *, layers: str = "model.layers", size: float = 0.3
) -> list[tuple[nn.Module, torch.Tensor]]:
    """Write an adapter of every `o_proj` of the network; return these modules and the updates of their weights.

    `layers` is what the checkpoint calls the list of layers, `size` the standard deviation of the numbers.
    """
    generator, tensors = torch.Generator().manual_seed(1), {}
    updates: list[tuple[nn.Module, torch.Tensor]] = []
    for name, module in network.named_modules():
        if name.endswith("o_proj"):
            rows, columns = module.get_parameter("weight").shape
            a, b = (torch.randn(shape, generator=generator) * size for shape in ((RANK, columns), (rows, RANK)))
            updates.append((module, SCALE * b @ a))
            stored = f"base_model.model.{name.replace('model.layers', layers)}"
            tensors |= {f"{stored}.lora_A.weight": a, f"{stored}.lora_B.weight": b}
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    facts = {"peft_type": "LORA", "r": RANK, "lora_alpha": int(SCALE * RANK), "target_modules": ["o_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(facts))
    return updates
