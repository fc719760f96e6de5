"""SHA-256 digests of all bytes of files, computed by all processor cores and remembered in the user's cache folder.

A remembered digest is used only while the file has the same path, size, inode and times. As in Git's index, the digest of a
file that changed shortly before it was read is not remembered: a second change could leave all times equal.
"""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from secrets import token_hex
from typing import Any

PIECE = 64 << 20  # bytes that one thread hashes in a row
CHUNK = 1 << 20  # bytes read at a time
LEAST_REMEMBERED = 16 << 20  # bytes: hashing a smaller file is faster than opening two files
SETTLED_NS = 2_000_000_000  # coarsest step of a file system's times (FAT)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file, and the attributes that change when it is written or replaced; times are in nanoseconds."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


def identify(path: Path) -> FileIdentity:
    """Return the identity of the file at `path` now. Raises FileNotFoundError if there is none."""
    stat = path.stat()
    return FileIdentity(str(path.absolute()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev)


def digests(files: Sequence[FileIdentity], threads: int | None = None, cache: Path | None = None) -> list[str]:
    """Return a digest of the content of each file; two digests are equal if and only if the contents are.

    `threads` hash at the same time, by default one for each processor core. `cache` is the folder of remembered digests, by
    default one in the user's cache folder. Raises ValueError for a file that is no longer the one that was identified.
    """
    begun, cache = time.time_ns(), cache or _cache()
    by_file = {file: remembered for file in files if (remembered := _recall(cache, file)) is not None}
    missing = [file for file in dict.fromkeys(files) if file not in by_file]
    by_file |= _hashed(missing, threads or os.cpu_count() or 1)
    for file in files:
        if identify(Path(file.path)) != file:
            raise ValueError(f"{file.path} changed while it was loaded: load it again")
    for file in missing:
        _remember(cache, file, by_file[file], begun)
    return [by_file[file] for file in files]


def _hashed(files: Sequence[FileIdentity], threads: int) -> dict[FileIdentity, str]:
    """Return the digest of each file, which is the digest of those of its pieces."""
    pieces = [(file, start) for file in files for start in range(0, file.size, PIECE) or (0,)]
    with ThreadPoolExecutor(threads) as pool:
        digests = list(pool.map(_digest_of_piece, pieces))
    by_file = groupby(zip(pieces, digests, strict=True), key=lambda pair: pair[0][0])
    return {file: sha256(b"".join(digest for _, digest in its)).hexdigest() for file, its in by_file}


def _digest_of_piece(piece: tuple[FileIdentity, int]) -> bytes:
    """Return the digest of at most `PIECE` bytes of a file."""
    file, start = piece
    digest, buffer = sha256(), memoryview(bytearray(CHUNK))
    with open(file.path, "rb", buffering=0) as opened:
        opened.seek(start)
        left = PIECE
        while left and (count := opened.readinto(buffer[: min(CHUNK, left)])):
            digest.update(buffer[:count])
            left -= count
    return digest.digest()


def _cache() -> Path:
    """Return the folder of remembered digests."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dlstep" / "digests"


def _entry(cache: Path, file: FileIdentity) -> Path:
    """Return where the digest of a file is remembered."""
    return cache / f"{sha256(os.fsencode(file.path)).hexdigest()[:32]}.json"


def _recall(cache: Path, file: FileIdentity) -> str | None:
    """Return the remembered digest of exactly this file; None if there is none or it cannot be read."""
    if file.size < LEAST_REMEMBERED:
        return None
    with suppress(OSError, ValueError, RecursionError):
        entry: Any = json.loads(_entry(cache, file).read_text(encoding="utf-8"))
        if isinstance(entry, dict) and entry.get("file") == asdict(file) and isinstance(entry.get("digest"), str):
            return entry["digest"]
    return None


def _remember(cache: Path, file: FileIdentity, digest: str, begun: int) -> None:
    """Remember the digest of a file that was read after the time `begun`, if a later change must alter its times."""
    if file.size < LEAST_REMEMBERED or max(file.mtime_ns, file.ctime_ns) > begun - SETTLED_NS:
        return
    with suppress(OSError):  # if the folder cannot be written, the next load only takes longer
        path = _entry(cache, file)
        cache.mkdir(parents=True, exist_ok=True)
        target = path.with_name(f".{path.name}.{token_hex(4)}")
        target.write_text(json.dumps({"file": asdict(file), "digest": digest}), encoding="utf-8")
        target.replace(path)
