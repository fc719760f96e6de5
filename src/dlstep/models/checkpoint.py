"""Load a checkpoint folder: no remote code, no pickled weights, no network access."""

from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from dlstep_kernels.quantization import FP8

from ..core import Spec
from ..distributed.ranks import ALONE, Ranks
from .description import Description, check_ends, read_description
from .layers import install_experts
from .quantization import Owners, quantized_weights, set_quantized
from .reading import Contents, read_contents
from .shapes import in_gib
from .sharding import install_ranks, parameter_shards
from .weights import (
    Placement,
    Progress,
    Shares,
    compute_buffers,
    empty_network,
    fill,
    network_tensors,
    no_progress,
    plan_weights,
    put,
    shortened,
)

SMALL = 10_000_000  # parameters; smaller networks gain little from 16 bits or from a second thread
# Instructions (torch's names) with which a processor multiplies a dtype faster than float32.
FAST = {
    "BF16": (torch.bfloat16, ("amx_bf16", "avx512_bf16", "bf16")),
    "F16": (torch.float16, ("amx_fp16", "avx512_fp16")),
}


def default_dtype(device: str, contents: Contents) -> tuple[torch.dtype, str]:
    """Return the default dtype of the weights on this type of device, and the reason in words."""
    if device != "cpu":
        return torch.bfloat16, f"the default on {device}"
    counts = Counter[str]()
    for tensor in contents.tensors.values():
        counts[tensor.dtype] += prod(tensor.shape)
    if counts.total() < SMALL:
        return torch.float32, "the network is small"
    ((stored, _),) = counts.most_common(1)
    dtype, instructions = FAST.get(stored, (torch.float32, ()))
    if any(map(torch.cpu.get_capabilities().get, instructions)):
        return dtype, f"stored as {stored}, which this processor multiplies faster than float32"
    return torch.float32, f"stored as {stored}, which this processor does not multiply faster"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A network in evaluation mode, or this rank's shard of it, with its description."""

    network: PreTrainedModel
    """The network."""
    description: Description
    """Facts of its folder."""
    kv_dtype: torch.dtype
    """Type of keys and values in the KV cache."""
    ranks: Ranks = ALONE
    """The group of processes that share the network."""
    files: tuple[Path, ...] = ()
    """The weight files; empty if none was loaded."""

    @property
    def spec(self) -> Spec:
        """The facts for the core."""
        return self.description.spec


def load_checkpoint(
    path: str | Path,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
    *,
    family: object = None,
    mask_token_id: int | None = None,
    description: Description | None = None,
    progress: Progress = no_progress,
    ranks: Ranks = ALONE,
    quantized: bool = False,
    kv_dtype: torch.dtype | None = None,
) -> Checkpoint:
    """Return the network of a checkpoint folder.

    Args:
        path: The folder.
        device: Device for the network, such as `cuda:0`.
        dtype: Type of the weights; None: that of `default_dtype`.
        family: Family of the checkpoint or its name, regardless of config.json; None: detected.
        mask_token_id: Token id of the mask; None: from the folder.
        description: Facts of the folder, instead of the arguments `path`, `family` and
            `mask_token_id`.
        progress: Called with the number of bytes to load. It returns a context manager that yields
            a function, which is called with the size of each loaded piece.
        ranks: Processes that share the network; each reads its shard.
        quantized: Whether `quantize` is applied to each weight as it is read.
        kv_dtype: Type of keys and values in the KV cache; None: that of the network.

    Raises:
        FileNotFoundError: If there are no safetensors weights, and as `read_description` does.
        ValueError: With tensors that are missing, unused or misshaped, if ranks do not fit, and as
            `quantize` and `read_description` do.
    """
    description = description or read_description(path, family, mask_token_id=mask_token_id)
    where = torch.device(device)
    contents = read_contents(description.path)
    dtype = default_dtype(where.type, contents)[0] if dtype is None else dtype
    network = _load_network(description, contents, where, dtype, progress, ranks, quantized=quantized)
    return Checkpoint(network, description, kv_dtype or network.dtype, ranks, contents.files)


def placements_of(description: Description, network: PreTrainedModel, contents: Contents) -> list[Placement]:
    """Return where the tensors of a checkpoint go in its empty network.

    Raises ValueError for tensors that are missing, unused or misshaped, and for an end token that is never sampled.
    """
    check_ends(description)
    folder, family = description.path, description.family
    if contents.problems:
        raise ValueError(f"the weights in {folder} cannot be read: {'; '.join(shortened(contents.problems))}")
    placements, problems = plan_weights(network, contents, family.weights, family.ignored)
    if problems:
        raise ValueError(f"the weights in {folder} do not fit {family.network.__name__}: {'; '.join(shortened(problems))}")
    return placements


class Layout(NamedTuple):
    """How a rank stores an empty network: its shares of the parameters, their dtypes, and owners of quantized ones by `id`."""

    shares: Shares
    dtypes: dict[str, torch.dtype]
    owners: dict[int, Owners]

    @classmethod
    def of(cls, network: PreTrainedModel, ranks: Ranks = ALONE, *, quantized: bool = False) -> "Layout":
        """Return the layout of a network. Raises ValueError if it cannot be divided among the ranks, or quantized."""
        shares = Shares(network_tensors(network).shapes, parameter_shards(network, ranks), ranks)
        tensors = network.state_dict(keep_vars=True)
        owners = quantized_weights(network) if quantized else {}
        return cls(
            shares, {first: FP8 if id(tensors[first]) in owners else tensors[first].dtype for first in shares.shapes}, owners
        )

    @property
    def size(self) -> int:
        """Bytes of the parameters, with the scales of quantized ones."""
        shapes = {first: self.shares.shape(first) for first in self.dtypes}
        scales = sum(4 * prod(shapes[first][:-1]) for first, dtype in self.dtypes.items() if dtype == FP8)
        return scales + sum(dtype.itemsize * prod(shapes[first]) for first, dtype in self.dtypes.items())


def _load_network(
    description: Description,
    contents: Contents,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress,
    ranks: Ranks,
    *,
    quantized: bool,
) -> PreTrainedModel:
    """Return the network of a folder with the `contents` of its files, in evaluation mode."""
    folder = description.path
    network = empty_network(description.family.network, description.config, dtype)
    placements = placements_of(description, network, contents)
    layout = Layout.of(network, ranks, quantized=quantized)
    shares, owners, dtypes = layout.shares, layout.owners, layout.dtypes
    tensors = network.state_dict(keep_vars=True)
    # Allocate all parameters first, so that a device that is too small fails early; on a CPU, unfilled memory
    # costs nothing.
    try:
        filled = {first: torch.empty(shares.shape(first), dtype=kind, device=device) for first, kind in dtypes.items()}
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"the weights in {folder} take {in_gib(layout.size)} as {dtype}, more than {device} has left ({error})"
        ) from error
    scales = {
        first: torch.empty(its.shape[:-1], dtype=torch.float32, device=device)
        for first, its in filled.items()
        if its.dtype == FP8
    }
    placements = list(shares.held(placements))
    total = sum(contents.tensors[name].size for name in {placement.tensor for placement in placements})
    with torch.no_grad(), progress(total) as advance:
        fill(filled, scales, placements, contents.tensors, advance, shares, dtype)
    put(network, filled)
    compute_buffers(network, device)
    for first, its in scales.items():
        set_quantized(owners[id(tensors[first])], filled[first], its)
    install_ranks(network, ranks)
    install_experts(network)
    return network.eval()
