"""The files of a run: JSON lines that stay readable if the process is killed, and a lock on their folder.

Each line is one write, and may have a checksum. A partial last line, left by a process that was
killed while it wrote, is cut off.
"""

import json
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from ..core import DlstepError, Fields, short

CHECKSUM = "checksum"
LOCK = "lock"
Line = Fields


def digest_of(content: bytes) -> str:
    """Return a short digest."""
    return blake2b(content, digest_size=8).hexdigest()


def checksum(line: object) -> str:
    """Return the checksum of a line, which covers its values and the order of its fields."""
    return blake2b(json.dumps(line).encode(), digest_size=16).hexdigest()


def sealed(line: Line) -> Line:
    """Return a line with its checksum."""
    return {**line, CHECKSUM: checksum(line)}


def parsed(text: str | bytes, place: object) -> Any:
    """Return the value of a JSON text. Raises ValueError that names `place` if the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} holds no JSON: {error}") from error


def whole_lines(path: Path) -> list[Line]:
    """Return the lines without a partial last one. Raises ValueError if one is not an object."""
    if not path.exists():
        return []
    lines: list[Line] = []
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        line = parsed(text, f"{path}, line {number}")
        if not isinstance(line, dict):
            raise ValueError(f"{path}, line {number} is not a line of a run: {short(line)}")
        lines.append(line)
    return lines


def sealed_lines(path: Path) -> Iterator[Line]:
    """Yield the content of each line of a file of a run, without a partial last line.

    Raises ValueError for a line whose checksum is wrong.
    """
    for number, line in enumerate(whole_lines(path), 1):
        content = {name: value for name, value in line.items() if name != CHECKSUM}
        if line != sealed(content):
            raise ValueError(
                f"{path}, line {number} does not have its checksum, so it was changed or written by another version of dlstep: "
                "restore the file, or delete the line and run the same command again, which answers its request again"
            )
        yield content


def opened(path: Path) -> IO[bytes]:
    """Open a file to append lines, after cutting off a partial last line."""
    if path.exists():
        complete = path.read_bytes().rpartition(b"\n")
        with path.open("r+b") as file:
            file.truncate(len(complete[0]) + len(complete[1]))
    return path.open("ab", buffering=0)  # each line is one write


def encoded(line: Line) -> bytes:
    """Return a line as bytes."""
    return json.dumps(line, allow_nan=False).encode() + b"\n"


def append(file: IO[bytes], line: Line) -> None:
    """Append a line to an `opened` file. Raises OSError if the disk is full, so no line follows a partial one."""
    left = memoryview(encoded(line))
    while left:  # an unbuffered write may be partial
        left = left[file.write(left) :]


def replaced(path: Path, content: bytes) -> None:
    """Write a file atomically: if the process is killed or the machine loses power, the old file remains."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


class RunLock:
    """An exclusive lock on the folder of a run, held until `close` or until the process ends.

    The kernel holds the lock, so `kill -9` also releases it, and a stopped process keeps it.

    Args:
        folder: the folder of the run; created if it does not exist.

    Raises:
        ValueError: another process holds the lock.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / LOCK
        self._lock = FileLock(self._path, thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise ValueError(
                f"{folder} is in use by another process: wait until it ends, end it (`fuser {self._path}` finds it) and run "
                "this command again, or write to another output"
            ) from None
        self._locked = self._path.stat()

    def check(self) -> None:
        """Raise DlstepError if the folder was deleted or replaced, so that the lock is void."""
        try:
            same = os.path.samestat(self._locked, self._path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            raise DlstepError(
                f"{self._path.parent} was deleted or replaced while this process wrote to it, so its output is not written; "
                "run the same command again"
            )

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()


def check_free(folder: Path) -> None:
    """Raise ValueError if another process holds this folder's lock. Call before slow work."""
    if (folder / LOCK).exists():
        RunLock(folder).close()
