"""Files of JSON lines that stay readable if the process is killed: each line is one write, and may have a checksum.

A partial last line, left by a process that was killed while it wrote, is cut off.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from ..core.checks import short

CHECKSUM = "checksum"
Line = Mapping[str, Any]


def checksum(line: object) -> str:
    """Return the checksum of a line, which covers its values and the order of its fields."""
    return blake2b(json.dumps(line).encode(), digest_size=16).hexdigest()


def is_intact(line: object, said: object, prefix: str = "") -> bool:
    """Return whether `said` is `prefix` followed by the checksum of a line that was read."""
    try:
        return said == prefix + checksum(line)
    except RecursionError:
        return False


def sealed(line: Line) -> Line:
    """Return a line with its checksum."""
    return {**line, CHECKSUM: checksum(line)}


def whole_lines(path: Path) -> list[Line]:
    """Return the lines of a file, without a partial last line. Raises ValueError for a line that is not a JSON object."""
    if not path.exists():
        return []
    found: list[Line] = []
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} holds no JSON: {short(str(error))}") from error
        if not isinstance(line, dict):
            raise ValueError(f"{path}, line {number} is not a line of a run: {short(line)}")
        found.append(line)
    return found


def opened(path: Path) -> IO[bytes]:
    """Open a file to append lines, after cutting off a partial last line."""
    if path.exists():
        kept = path.read_bytes().rpartition(b"\n")
        with path.open("r+b") as file:
            file.truncate(len(kept[0]) + len(kept[1]))
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
    """Write a file atomically: if the process is killed, the old file remains."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)
