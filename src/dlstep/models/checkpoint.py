"""A checkpoint folder as a network and the facts that decoding needs. No remote code, no pickled weights, no network
access.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..core import Spec
from .attention import ATTENTION, install
from .description import Description, read_description
from .families import FAMILIES


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A network in evaluation mode with its description."""

    network: PreTrainedModel
    description: Description

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.description.name

    @property
    def spec(self) -> Spec:
        """The facts that the core needs."""
        return self.description.spec

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the folder."""
        return self.description.tokenizer

    @property
    def options(self) -> Mapping[str, Any]:
        """Values of strategy options, as trained."""
        return self.description.options

    @property
    def decoding_strategy(self) -> str | None:
        """The strategy the network was trained for."""
        return self.description.decoding_strategy

    @property
    def max_model_len(self) -> int:
        """The longest context."""
        return self.description.max_model_len


def load_checkpoint(path: str | Path, device: str = "cpu", dtype: torch.dtype | None = None) -> Checkpoint:
    """The network at `path` on `device`, by default in float32 on a CPU and bfloat16 elsewhere.

    Raises what `read_description` raises, FileNotFoundError when there are no safetensors weights, and ValueError
    naming every tensor that is missing, not used, or of another shape.
    """
    description = read_description(path)
    folder = description.path
    _require_safetensors(folder)
    if dtype is None:
        dtype = torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    install()
    loaded: Any = FAMILIES[description.architecture].network.from_pretrained(
        folder,
        config=description.config,
        dtype=dtype,
        attn_implementation=ATTENTION,
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # so that they are reported with the others
    )
    network, report = loaded
    kinds = (("missing_keys", "missing"), ("unexpected_keys", "not used"), ("mismatched_keys", "other shape"))
    problems = [f"{what}: {', '.join(sorted(map(str, report[key])))}" for key, what in kinds if report[key]]
    if problems:
        raise ValueError(f"the weights in {folder} do not fit {description.architecture}: {'; '.join(problems)}")
    return Checkpoint(network.to(torch.device(device)).eval(), description)


def _require_safetensors(folder: Path) -> None:
    """Raise FileNotFoundError if the weights are not there in the one format that cannot hold code."""
    if (folder / "model.safetensors").is_file() or (folder / "model.safetensors.index.json").is_file():
        return
    others = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    found = f" ({', '.join(others)} may hold code and is not read: convert it to safetensors)" if others else ""
    raise FileNotFoundError(f"{folder} holds neither model.safetensors nor model.safetensors.index.json{found}")
