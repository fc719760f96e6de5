"""What would happen if a checkpoint were loaded, found out from its config, its tokenizer and the headers of its weights."""

from dataclasses import dataclass
from pathlib import Path

import torch

from .description import Description, read_description
from .shapes import KVShape, kv_shapes
from .shards import Contents, read_contents
from .weights import empty_network, plan_weights


@dataclass(frozen=True, slots=True)
class Report:
    """A checkpoint as it would be loaded, and everything that keeps it from that.

    Without a `description` the folder does not say what it is; then there are no `parameters` and no `kv_shapes`. Tied
    parameters count once. `stored_bytes` are those of its tensors in files.
    """

    folder: Path
    description: Description | None
    parameters: int
    stored_bytes: int
    kv_shapes: tuple[KVShape, ...]
    problems: tuple[str, ...]


def check(path: str | Path, model_name: str | None = None) -> Report:
    """Look at the checkpoint folder at `path`. Its weights are not read, its code is not run.

    Raises FileNotFoundError if there is no such folder.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"checkpoint folder {str(folder)!r} does not exist: give the path of a local folder")
    description, contents = None, Contents({}, ())
    problems: list[str] = []
    try:
        description = read_description(folder, model_name)
    except (ValueError, OSError) as error:
        problems.append(str(error))
    try:
        contents = read_contents(folder)
        problems += contents.problems
    except FileNotFoundError as error:
        problems.append(str(error))
    parameters, shapes = 0, ()
    if description is not None:
        family = description.family
        network = empty_network(family.network, description.config, torch.bfloat16)
        parameters = sum(parameter.numel() for parameter in network.parameters())
        shapes = kv_shapes(network.config)
        if contents.tensors and not contents.problems:  # of damaged files half would be missing
            problems += plan_weights(network, contents, family.weights, family.ignored)[1]
    stored_bytes = sum(stored.size for stored in contents.tensors.values())
    return Report(folder, description, parameters, stored_bytes, shapes, tuple(problems))
