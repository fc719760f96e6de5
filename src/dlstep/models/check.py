"""Predict the result of loading a checkpoint from its config, tokenizer and weight headers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel

from .adapter import Adapter, plan_adapter, read_adapter
from .description import Description, check_ends, read_description
from .families import Family
from .reading import Contents, Source, source_at
from .shapes import KVShape, kv_shapes
from .weights import empty_network, plan_weights, shortened

Found = TypeVar("Found")
MOST_LISTED = 200


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A report on a checkpoint: the model that loading would produce, and every problem that prevents loading.

    `description` is None if the folder cannot be described; then `parameters` and `stored_bytes` are 0 and `kv_shapes`
    is empty. Tied parameters count once. `stored_bytes` is the size of the stored tensors, `download_bytes` that of the
    files that are not in the folder. `warnings` do not prevent loading.
    """

    folder: Path
    description: Description | None
    parameters: int
    stored_bytes: int
    download_bytes: int
    kv_shapes: tuple[KVShape, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def check(
    path: str | Path | Source, family: object = None, lora_path: str | Path | None = None, **stated: Any
) -> CheckpointReport:
    """Check the checkpoint at `path`, and the adapter for it at `lora_path`.

    `stated` are further arguments of `read_description`.
    This runs the same code as loading, so both find the same problems, but it reads no weights and
    runs no code of the checkpoint. Raises FileNotFoundError if there is no such folder.
    """
    source = source_at(path)
    folder = source.path
    if not folder.is_dir():
        raise FileNotFoundError(f"checkpoint folder {str(folder)!r} does not exist: give a folder, or a name like org/name")
    problems: list[str] = []
    description = _found(problems, lambda: read_description(source, family, **stated))
    adapter = None if lora_path is None else _found(problems, lambda: read_adapter(Path(lora_path)))
    if description is None:
        return CheckpointReport(folder, None, 0, 0, source.missing_bytes, (), tuple(shortened(problems, MOST_LISTED)))
    _found(problems, lambda: check_ends(description))
    contents = _found(problems, source.contents) or Contents({}, ())
    problems += contents.problems
    stored_bytes = sum(stored.size for stored in contents.tensors.values())
    known, config = description.family, description.config
    network = _found(problems, lambda: empty_network(known.network, config, torch.bfloat16))
    parameters, shapes = 0, ()
    if network is not None:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        shapes = kv_shapes(network.config)
        # Otherwise all tensors of damaged files would be reported as missing.
        if contents.tensors and not contents.problems:
            _plan(problems, network, known, contents, adapter)
    warnings = [
        f"config.json states {name}, which dlstep ignores: see in the published code whether it matters"
        for name in description.unknown
    ]
    return CheckpointReport(
        folder,
        description,
        parameters,
        stored_bytes,
        source.missing_bytes,
        shapes,
        tuple(shortened(problems, MOST_LISTED)),
        tuple(shortened(warnings, MOST_LISTED)),
    )


def _plan(problems: list[str], network: PreTrainedModel, family: Family, contents: Contents, adapter: Adapter | None) -> None:
    """Add mismatches between the network and the tensors of the checkpoint and of the adapter."""
    planned = _found(problems, lambda: plan_weights(network, contents, family.weights, family.ignored))
    problems += planned[1] if planned else ()
    stored = {name: tensor.shape for name, tensor in contents.tensors.items()}
    if adapter is not None:
        _found(problems, lambda: plan_adapter(network, adapter, family.weights, stored, merge=True))


def _found(problems: list[str], read: Callable[[], Found]) -> Found | None:
    """Return the result of `read`, or None after adding the message of its error to `problems`."""
    try:
        return read()
    except (ValueError, OSError) as error:
        problems.append(str(error))
        return None
