"""Replace or free the weights of a running network. Their storages remain, so compiled layers and modules stay valid.

The tensors of a source go through the same steps as when a checkpoint is loaded: renaming, sharding, the adapter,
and quantization.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dlstep_kernels.quantization import FP8

from ..core import Refused, short
from .adapter import Adapter, apply_adapter
from .checkpoint import Checkpoint, Layout, placements_of
from .fingerprint import fingerprint
from .layers import SCALES, Adapted
from .quantization import quantize_weight
from .reading import Contents, Folder, Stored, read_contents
from .weights import Tensors, empty_network, fill

GIVEN = Path("the given tensors")  # instead of a folder, in error messages
DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}  # as files name them


class Weights:
    """The weights of a running network, with the settings for filling them from the tensors of a checkpoint.

    Args:
        checkpoint: The network, after its adapter was applied and its layers were quantized and compiled.
        adapter: The adapter; None: no adapter.
        merged: Whether the adapter was merged into the weights.
        quantization: How weights are stored; None: in the dtype of the network.
    """

    def __init__(
        self, checkpoint: Checkpoint, adapter: Adapter | None = None, *, merged: bool = True, quantization: str | None = None
    ) -> None:
        self._checkpoint, self._adapter, self._merged, self._quantization = checkpoint, adapter, merged, quantization
        self._kept: list[torch.UntypedStorage] = []  # on the host, after `free`

    @torch.no_grad()
    def update(self, source: Path | Tensors, begin: Callable[[], None]) -> str:
        """Copy a checkpoint into the weights. Return their new fingerprint, which is random for tensors that are in no file.

        Args:
            source: Folder of a checkpoint, or its tensors by name.
            begin: Function to call once names, shapes and dtypes are checked, before anything is changed.

        Raises:
            FileNotFoundError: For a folder without a checkpoint.
            ValueError: For a tensor that is missing, unused or misshaped, or that differs from another one to which it is tied;
                also if the update fails on another rank.
        """
        problem = files = None
        try:
            files = self._fill(source, begin)
        except Exception as error:  # noqa: BLE001 - all ranks must know
            problem = error
        if any(self._checkpoint.ranks.gather_objects(problem is not None)):
            raise problem or ValueError("another rank could not update its weights: see its error on stderr")
        if not files:
            return uuid4().hex
        updated = replace(self._checkpoint, files=files)
        return fingerprint(updated, self._adapter, merged=self._merged, quantization=self._quantization)

    def _fill(self, source: Path | Tensors, begin: Callable[[], None]) -> tuple[Path, ...]:
        """Copy a checkpoint into the weights. Return its files."""
        checkpoint, adapter, dtype = self._checkpoint, self._adapter, self._checkpoint.network.dtype
        folder, given = (source, None) if isinstance(source, Path) else (GIVEN, source)
        contents = read_contents(folder) if given is None else _contents(given)
        description = replace(checkpoint.description, source=Folder(folder))
        placements = list(self._layout.shares.held(placements_of(description, self._whole, contents)))
        begin()
        self._kept = []
        self.restore()
        parameters, scales = self._running
        # An adapter may change weights before they are quantized.
        staged = {name: torch.empty_like(parameters[name], dtype=dtype) for name in scales if adapter is not None}
        full, row_scales = parameters | staged, {} if staged else scales
        fill(full, row_scales, placements, contents.tensors, lambda size: None, self._layout.shares, dtype, given)
        if adapter is not None:
            stored = {name: tensor.shape for name, tensor in contents.tensors.items()}
            rules, ranks = description.family.weights, checkpoint.ranks
            apply_adapter(checkpoint.network, adapter, rules, stored, merge=self._merged, ranks=ranks, again=full)
        for name, values in staged.items():
            codes, its_scales = quantize_weight(values)
            parameters[name].copy_(codes)
            scales[name].copy_(its_scales)
        return contents.files

    @cached_property
    def _whole(self) -> PreTrainedModel:
        """The network as a checkpoint describes it: whole, without memory."""
        description = self._checkpoint.description
        return empty_network(description.family.network, description.config, self._checkpoint.network.dtype)

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(self._whole, self._checkpoint.ranks)

    @cached_property
    def _running(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The parameters by name, and the row scales of those that are quantized."""
        parameters, scales = dict[str, Tensor](), dict[str, Tensor]()
        for name in self._layout.dtypes:
            parameters[name], its_scales = running_tensors(self._checkpoint.network, name)
            if its_scales is not None:
                scales[name] = its_scales
        return parameters, scales

    @cached_property
    def _storages(self) -> list[tuple[torch.UntypedStorage, int]]:
        """The storages that updates fill, with their sizes in bytes."""
        storages = [tensor.untyped_storage() for its in self._running for tensor in its.values()]
        return [(storage, storage.nbytes()) for storage in {its.data_ptr(): its for its in storages}.values()]

    @property
    def size(self) -> int:
        """Bytes that the weights take on their device now."""
        return sum(storage.nbytes() for storage, _ in self._storages)

    def free(self, *, keep: bool) -> None:
        """Free the storages of the weights. With `keep`, first copy them to the host; those on a CPU then remain."""
        if keep and self._checkpoint.network.device.type == "cpu":
            return
        if self.size or not keep:
            self._kept = [storage.cpu() for storage, _ in self._storages] if keep else []
        for storage, _ in self._storages:
            storage.resize_(0)

    def restore(self) -> None:
        """Allocate the storages again, with the content that `free` kept."""
        for storage, size in self._storages:
            if storage.nbytes() != size:  # `resize_` moves a storage even to the same size, and graphs read its address
                storage.resize_(size)
        for (storage, _), kept in zip(self._storages, self._kept, strict=False):
            storage.copy_(kept)
        self._kept = []


def tensors_of(source: Any) -> dict[str, Tensor]:
    """Return tensors by name, from a mapping or pairs. Raises Refused for anything else."""
    wrong = source
    with suppress(TypeError, ValueError):
        tensors = dict(source)
        wrong = {name: its for name, its in tensors.items() if not (isinstance(name, str) and isinstance(its, Tensor))}
        if not wrong:
            return tensors
    raise Refused("source", "invalid_type", f"must be a folder, or tensors by name such as a state_dict, got {short(wrong)}")


def _contents(tensors: Tensors) -> Contents:
    """Return what a file with these tensors would contain."""
    stored: dict[str, Stored] = {}
    for name, tensor in tensors.items():
        dtype = DTYPES.get(tensor.dtype, str(tensor.dtype))
        stored[name] = Stored(name, tuple(tensor.shape), dtype, GIVEN, 0, tensor.nbytes)
    return Contents(stored, ())


def running_tensors(network: PreTrainedModel, name: str) -> tuple[Tensor, Tensor | None]:
    """Return the tensor of a parameter in a running network, and the scales of its rows if it is quantized.

    `name` is the parameter's name before its layer was wrapped by an adapter or merged with other layers.
    """
    from .compiled import Slice  # imports torch's compiler

    owner, _, attribute = name.rpartition(".")
    module: Any = network.get_submodule(owner)
    module = module.base if isinstance(module, Adapted) else module
    whole = module.whole if isinstance(module, Slice) else module
    value: Tensor = getattr(whole, attribute).detach()
    scales: Tensor | None = getattr(whole, SCALES.get(attribute, "scales")) if value.dtype == FP8 else None
    if whole is not module:
        rows = slice(module.start, module.stop)
        return value[rows], None if scales is None else scales[rows]
    return value, scales
