"""Files of JSON lines that stay readable if the process is killed: each line is one write, and may have a checksum.

A partial last line, left by a process that was killed while it wrote, is cut off.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from ..core.checks import short

CHECKSUM = "checksum"
Line = Mapping[str, Any]


def digest_of(content: bytes) -> str:
    """Return a short digest."""
    return blake2b(content, digest_size=8).hexdigest()


def checksum(line: object) -> str:
    """Return the checksum of a line, which covers its values and the order of its fields."""
    return blake2b(json.dumps(line).encode(), digest_size=16).hexdigest()


def is_intact(line: object, stated: object, prefix: str = "") -> bool:
    """Return whether `stated` is `prefix` followed by the checksum of a line that was read."""
    try:
        return stated == prefix + checksum(line)
    except RecursionError:
        return False


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


def is_a(value: Any, kind: Any) -> bool:
    """Return whether a value of JSON is of a kind.

    A kind is a type, `[int]` for a list of ints, `{str: float}` for a mapping of any names to floats, `{"role": str}` for a
    mapping with this field, or a tuple of alternatives. A bool is no int, and an int is also a float.
    """
    match kind:
        case tuple():
            return any(is_a(value, option) for option in kind)
        case list():
            return isinstance(value, list) and all(is_a(item, kind[0]) for item in value)
        case dict():
            if not isinstance(value, dict):
                return False
            if str in kind:
                return all(is_a(item, kind[str]) for item in value.values())
            return all(is_a(value.get(name), field) for name, field in kind.items())
    return isinstance(value, bool) == (kind is bool) and isinstance(value, kind | int if kind is float else kind)


def sealed_lines(path: Path, kinds: Mapping[str, Any] | Callable[[Line], Mapping[str, Any]]) -> Iterator[Line]:
    """Yield the content of each line of a file of a run, without a partial last line.

    `kinds` maps required fields to their kinds, or is a function that returns this mapping for a
    line. Raises ValueError for a line that lacks a field or whose checksum is wrong.
    """
    for number, line in enumerate(whole_lines(path), 1):
        content = {name: value for name, value in line.items() if name != CHECKSUM}
        expected = kinds(content) if callable(kinds) else kinds
        if wrong := next((name for name, kind in expected.items() if not is_a(content.get(name), kind)), None):
            raise ValueError(f"{path}, line {number} is not a line of a run, look at {wrong}: {short(content)}")
        if not is_intact(content, line.get(CHECKSUM)):
            raise ValueError(
                f"{path}, line {number} does not have its checksum, so it was changed or written by another version of dlstep: "
                "restore the file, or delete the line and run the same command again, which answers the problem again"
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
