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
from ..distributed.ranks import ALONE, Ranks
from .description import Description, read_description
from .digests import FileIdentity
from .reading import briefly
from .shards import read_contents
from .weights import Progress, load_network, no_progress


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A network in evaluation mode with its description; of several `ranks` each holds its share.

    `files` are those of its weights as they were before they were loaded; none of a network that was not loaded from files.
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
    """The network at `path` on `device`, by default in float32 on a CPU and bfloat16 elsewhere.

    `model_name` names its family where config.json leaves a doubt; a `description` that was read already stands for both.
    Of several `ranks` each reads its share. `progress` is that of `load_network`. Raises what
    `read_description` raises, FileNotFoundError when there are no safetensors weights, and ValueError naming every tensor that
    is missing, not used, or of another shape, or that ranks cannot share the network.
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
