"""Load a checkpoint folder: no remote code, no pickled weights, no network access."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..core import Spec
from ..distributed.ranks import ALONE, Ranks
from .description import Description, check_ends, read_description
from .reading import FileIdentity, read_contents
from .weights import Progress, load_network, no_progress


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A network in evaluation mode, or this rank's shard of it, with its description."""

    network: PreTrainedModel
    """The network."""
    description: Description
    """Facts of its folder."""
    ranks: Ranks = ALONE
    """The group of processes that share the network."""
    files: tuple[FileIdentity, ...] = ()
    """Identity of each weight file before it was read; empty if none was loaded."""

    @property
    def spec(self) -> Spec:
        """The facts for the core."""
        return self.description.spec


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
    """Return the network of a checkpoint folder.

    Args:
        path: The folder.
        device: Device for the network, such as `cuda:0`.
        dtype: Type of the weights; None: float32 on a CPU, else bfloat16.
        model_name: Family of the checkpoint, regardless of config.json; None: detected.
        mask_token_id: Token id of the mask; None: from the folder.
        description: Facts of the folder, instead of the arguments `path`, `model_name` and
            `mask_token_id`.
        progress: Called with the number of bytes to load. It returns a context manager that yields
            a function, which is called with the size of each loaded piece.
        ranks: Processes that share the network; each reads its shard.

    Raises:
        FileNotFoundError: If there are no safetensors weights, and as `read_description` does.
        ValueError: With tensors that are missing, unused or misshaped, if ranks do not fit, and as
            `read_description` does.
    """
    description = description or read_description(path, model_name, mask_token_id=mask_token_id)
    check_ends(description)
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
