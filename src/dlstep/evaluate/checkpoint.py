"""The files of a run. `answers.jsonl` has a line for each item, in their order, and is all that a run needs to go on.

Beside it, `beside.jsonl` has what depends on the batch, in the order in which it happened: a line for each answer, and lines
of work; `ahead.jsonl` has the answers that wait for an earlier one, while there are any; `run.json` says what was asked.
A line that is not whole, because the process was killed while it wrote, is cut off.
"""

import json
from collections.abc import Mapping, Sequence as Items
from pathlib import Path
from typing import IO, Any

from ..core.checks import short
from .items import Item, Key, options_text

ANSWERS, BESIDE, AHEAD, RUN = "answers.jsonl", "beside.jsonl", "ahead.jsonl", "run.json"
Line = Mapping[str, Any]
# Fields that a line must have, and what they hold; a whole number is a number, too.
KEY_FIELDS: dict[str, Any] = {"task": str, "document": int, "options": dict}
ROW_FIELDS = KEY_FIELDS | {
    "prompt": str | list,
    "answer": str,
    "tokens": list,
    "steps": int,
    "finish": str,
    "error": str,
    "seed": int,
    "gold": str,
    "found": str,
    "note": str,
    "scores": dict,
    "score": float,
}
BESIDE_FIELDS = KEY_FIELDS | {"forwards": int, "computed": int, "wasted": int, "seconds": float, "decided_at": list}


def key_of(line: Line) -> Key:
    """The key of an answer's line."""
    return line["task"], line["document"], options_text(line["options"])


def check(path: Path, number: int, line: object, kinds: Mapping[str, Any]) -> Line:
    """The line, if it has these fields. Raises ValueError for one that lacks a field, or has another kind of value in it."""
    for name, kind in kinds.items():
        value = line.get(name) if isinstance(line, dict) else None
        if isinstance(value, bool) or not isinstance(value, kind | int if kind is float else kind):
            raise ValueError(f"{path}, line {number} is no line of a run, look at {name}: {short(line)}")
    assert isinstance(line, dict), "some field is asked for"
    return line


def answer_lines(path: Path) -> list[Line]:
    """The answers of a file, without a last line that breaks off. Raises ValueError for a line that is none."""
    return [check(path, number, line, ROW_FIELDS) for number, line in enumerate(whole_lines(path), 1)]


def whole_lines(path: Path) -> list[Line]:
    """The lines of a file, without a last one that breaks off. Raises ValueError for a line that is no JSON object."""
    if not path.exists():
        return []
    found: list[Line] = []
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} holds no JSON: {short(str(error))}") from error
        if not isinstance(line, dict):
            raise ValueError(f"{path}, line {number} is no line of a run: {short(line)}")
        found.append(line)
    return found


def opened(path: Path) -> IO[bytes]:
    """A file to add lines to, its last one whole."""
    if path.exists():
        kept = path.read_bytes().rpartition(b"\n")
        with path.open("r+b") as file:
            file.truncate(len(kept[0]) + len(kept[1]))
    return path.open("ab", buffering=0)  # each line is one write


def encoded(line: Line) -> bytes:
    """A line as bytes."""
    return json.dumps(line, allow_nan=False).encode() + b"\n"


def append(file: IO[bytes], line: Line) -> None:
    """Append a line to an `opened` file. Raises OSError if the disk is full, so no line follows a partial one."""
    left = memoryview(encoded(line))
    while left:  # an unbuffered write may be partial
        left = left[file.write(left) :]


def begin(folder: Path, asked: Mapping[str, Any], named: str = "--out", remedy: str = "give another folder") -> None:
    """Note in a new folder what is asked. Raises ValueError for a folder that holds a run with other facts or options.

    The error calls the folder as the user `named` it and ends with the `remedy`.
    """
    path = folder / RUN
    text = json.dumps(asked, indent=2, sort_keys=True) + "\n"
    answered = any((folder / name).exists() and (folder / name).stat().st_size for name in (ANSWERS, BESIDE, AHEAD))
    if path.exists():
        said = read_run(folder)
        if said["key"] == json.loads(text)["key"]:
            return
        if answered:
            raise ValueError(f"{named} {folder} holds a run with {parting(said['key'], asked['key'])}: {remedy}")
    elif answered:
        raise ValueError(f"{named} {folder} holds answers without {RUN}: {remedy}")
    folder.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def read_run(folder: Path) -> dict[str, Any]:
    """The question of a run: its key, and its options as they were given. Raises ValueError for a folder without a run."""
    path = folder / RUN
    if not path.is_file():
        raise ValueError(f"no run in {short(str(folder))}: it has no {RUN}; give a folder that `dlstep eval --out` wrote")
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: {short(str(error))}") from error
    if not isinstance(said, dict) or not isinstance(said.get("key"), dict):
        raise ValueError(f"{path} is none of `dlstep eval`")
    return said


def parting(said: Any, asked: Any, name: str = "") -> str:
    """The first difference of two nested mappings, in words."""
    if isinstance(said, dict) and isinstance(asked, dict):
        for each in sorted({*said, *asked}):
            if json.dumps(said.get(each), sort_keys=True) != json.dumps(asked.get(each), sort_keys=True):
                return parting(said.get(each), asked.get(each), f"{name}.{each}" if name else each)
    return f"{name} {short(said)}, and now it is {short(asked)}"


class Checkpoint:
    """The answers of a run so far, and the files that they are written to."""

    def __init__(self, folder: Path, items: Items[Item]) -> None:
        self._items = items
        self.rows = answer_lines(folder / ANSWERS)
        keys = [item.key for item in items]
        for number, row in enumerate(self.rows):
            if number >= len(items) or key_of(row) != keys[number]:
                raise ValueError(f"{folder / ANSWERS}, line {number + 1} is no answer of this run: give another --out")
        places = {key: place for place, key in enumerate(keys)}
        ahead = answer_lines(folder / AHEAD)
        self._ahead = {places[key_of(row)]: row for row in ahead if key_of(row) in places}
        self._answers, self._beside = opened(folder / ANSWERS), opened(folder / BESIDE)
        self._waiting = opened(folder / AHEAD)
        self._ahead_path = folder / AHEAD
        self._advance()

    @property
    def missing(self) -> list[int]:
        """The places of the items without an answer, in order."""
        return [place for place in range(len(self.rows), len(self._items)) if place not in self._ahead]

    @property
    def known(self) -> list[Line]:
        """All answers so far."""
        return [*self.rows, *self._ahead.values()]

    def note(self, place: int, row: Line, beside: Line) -> None:
        """Write an answer to `answers.jsonl` if all earlier ones are there, else to the file of waiting answers."""
        append(self._beside, beside)  # written first, so every stored answer has its line here
        if place > len(self.rows):
            append(self._waiting, row)
        self._ahead[place] = row
        self._advance()

    def note_work(self, task: str, work: Line) -> None:
        """Write the cost of forward passes."""
        append(self._beside, {"task": task, "work": work})

    def close(self) -> None:
        """Close the files; what waited is forgotten once nothing is missing."""
        for file in (self._answers, self._beside, self._waiting):
            file.close()
        if len(self.rows) == len(self._items):
            self._ahead_path.unlink(missing_ok=True)

    def _advance(self) -> None:
        while (row := self._ahead.pop(len(self.rows), None)) is not None:
            append(self._answers, row)
            self.rows.append(row)
