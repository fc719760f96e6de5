"""A fingerprint of what a network computes: equal for equal networks, independent of file paths."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from ..distributed.ranks import Ranks
from .adapter_files import Adapter
from .checkpoint import Checkpoint
from .digests import FileIdentity, digests

UNRELATED = ("_name_or_path", "transformers_version")  # fields of a configuration about its origin


def fingerprint(
    checkpoint: Checkpoint, adapter: Adapter | None = None, *, merged: bool = True, quantization: str | None = None
) -> str:
    """Return 32 hexadecimal digits that depend on every number of the configuration and every byte of the weights.

    They also depend on the dtype, on the bytes of the `adapter`, on whether it is `merged` into the weights, on the
    `quantization`, and on the number of ranks, because several ranks sum in another order than one. Each rank hashes a
    share of the files. Raises ValueError if a file changed since it was loaded.
    """
    files = (*checkpoint.files, *(adapter.files if adapter is not None else ()))
    parts = {
        "network": type(checkpoint.network).__name__,
        "config": effective(checkpoint.description.config),
        "dtype": str(checkpoint.network.dtype),
        "files": [(Path(file.path).name, digest) for file, digest in zip(files, _shared(files, checkpoint.ranks), strict=True)],
        "adapter": None if adapter is None else {"merged": merged},
        "ranks": checkpoint.ranks.size,
    }
    if quantization is not None:
        parts["quantization"] = quantization
    return sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()[:32]


def effective(config: PretrainedConfig) -> dict[str, Any]:
    """Return the configuration that the network is built from, defaults included."""
    return {name: value for name, value in config.to_dict().items() if name not in UNRELATED}


def _shared(files: tuple[FileIdentity, ...], ranks: Ranks) -> list[str]:
    """Return the digests of all files; each of several ranks computes a share of them."""
    shares = ranks.gather_objects(digests(files[ranks.rank :: ranks.size]))
    return [shares[number % ranks.size][number // ranks.size] for number in range(len(files))]
