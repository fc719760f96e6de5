"""Load a checkpoint folder: no remote code, no pickled weights, no network access."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..core import Spec
from ..distributed.ranks import ALONE, Ranks
from .description import Description, read_description
from .digests import FileIdentity
from .reading import briefly
from .shards import read_contents
from .weights import Progress, load_network, no_progress


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A network in evaluation mode, or this rank's shard of it, with its description.

    `files` identify the weight files as they were before loading; empty if none were loaded.
    """

    network: PreTrainedModel
    description: Description
    ranks: Ranks = ALONE
    files: tuple[FileIdentity, ...] = ()

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.description.name

    @property
    def spec(self) -> Spec:
        """The facts for the core."""
        return self.description.spec

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the folder."""
        return self.description.tokenizer

    @property
    def options(self) -> Mapping[str, Any]:
        """Strategy options that the checkpoint was trained with or states."""
        return self.description.options

    @property
    def decoding_strategy(self) -> str | None:
        """The strategy the network was trained for."""
        return self.description.decoding_strategy

    @property
    def training(self) -> str | None:
        """How the network was trained."""
        return self.description.training

    @property
    def max_model_len(self) -> int:
        """The longest context."""
        return self.description.max_model_len


@briefly
def load_checkpoint(
    path: str | Path,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
    *,
    model_name: str | None = None,
    mask_token_id: int | None = None,
    description: Description | None = None,
    progress: Progress = no_progress,
    ranks: Ranks = ALONE,
) -> Checkpoint:
    """Return the network at `path` on `device`; `dtype` None is float32 on a CPU, else bfloat16.

    `model_name` names the family if config.json is ambiguous; a `description` replaces both `path`
    and `model_name`. Each of several `ranks` reads its shard. `progress` is as in `load_network`.
    Raises the errors of `read_description`, FileNotFoundError if there are no safetensors weights,
    and ValueError naming tensors that are missing, unused or misshaped, or if ranks do not fit.
    """
    description = description or read_description(path, model_name, mask_token_id=mask_token_id)
    family = description.family
    where = torch.device(device)
    if dtype is None:
        dtype = torch.float32 if where.type == "cpu" else torch.bfloat16
    contents = read_contents(description.path)
    network = load_network(
        description.path,
        contents,
        family.network,
        description.config,
        rules=family.weights,
        ignored=family.ignored,
        device=where,
        dtype=dtype,
        progress=progress,
        ranks=ranks,
    )
    return Checkpoint(network, description, ranks, contents.files)
