"""A fingerprint of what a network computes: equal for equal networks, independent of file paths."""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from ..distributed.ranks import Ranks
from .adapter import Adapter
from .checkpoint import Checkpoint

UNRELATED = ("_name_or_path", "transformers_version")  # fields of a configuration about its origin
PIECE = 64 << 20  # bytes that one thread hashes in a row
CHUNK = 1 << 20  # bytes read at a time


def fingerprint(
    checkpoint: Checkpoint, adapter: Adapter | None = None, *, merged: bool = True, quantization: str | None = None
) -> str:
    """Return 32 hexadecimal digits that depend on every number of the configuration and every byte of the weights.

    They also depend on the dtypes of the network and the KV cache, on the bytes of the `adapter`, on whether it is `merged`
    into the weights, on the `quantization`, and on the number of ranks, because several ranks add in a different order than
    one. Each rank hashes a share of the files.
    """
    files = (*checkpoint.files, *(adapter.files if adapter is not None else ()))
    parts = {
        "network": type(checkpoint.network).__name__,
        "config": effective(checkpoint.description.config),
        "dtypes": [checkpoint.network.dtype, checkpoint.kv_dtype],
        "files": [(file.name, digest) for file, digest in zip(files, _shared(files, checkpoint.ranks), strict=True)],
        "adapter": None if adapter is None else {"merged": merged},
        "ranks": checkpoint.ranks.size,
        "quantization": quantization,
    }
    return sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()[:32]


def effective(config: PretrainedConfig) -> dict[str, Any]:
    """Return the configuration that the network is built from, defaults included."""
    return {name: value for name, value in config.to_dict().items() if name not in UNRELATED}


def _shared(files: tuple[Path, ...], ranks: Ranks) -> list[str]:
    """Return the digests of all files; each of several ranks computes a share of them."""
    shares = ranks.gather_objects(digests(files[ranks.rank :: ranks.size]))
    return [shares[number % ranks.size][number // ranks.size] for number in range(len(files))]


def digests(files: Sequence[Path]) -> list[str]:
    """Return a digest of each file: the SHA-256 of the digests of its pieces, which all processor cores hash."""
    found: list[str] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file in files:
            starts = range(0, file.stat().st_size, PIECE) or (0,)
            pieces = pool.map(_digest_of_piece, [file] * len(starts), starts)
            found.append(sha256(b"".join(pieces)).hexdigest())
    return found


def _digest_of_piece(path: Path, start: int) -> bytes:
    digest = sha256()
    with path.open("rb") as file:
        file.seek(start)
        for _ in range(PIECE // CHUNK):
            digest.update(file.read(CHUNK))
    return digest.digest()
