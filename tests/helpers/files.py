"""Changes of files of checkpoints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor


def edit(path: Path, /, **changes: Any) -> None:
    """Change keys of a JSON file, which may not be there yet."""
    facts = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(facts | changes))


def edit_tensors(path: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of a file."""
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def save_adapter(folder: Path, tensors: dict[str, Tensor], rank: int, alpha: int, targets: list[str]) -> None:
    """Write a LoRA adapter of these tensors, which are named like the modules of the checkpoint."""
    folder.mkdir(exist_ok=True)
    named = {f"base_model.model.{name}": tensor for name, tensor in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    edit(folder / "adapter_config.json", peft_type="LORA", r=rank, lora_alpha=alpha, target_modules=targets)
