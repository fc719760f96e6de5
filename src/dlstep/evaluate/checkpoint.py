"""The files of a run.

- `answers.jsonl` has a line for each item, in their order.
- `beside.jsonl` has values that depend on the batch, in the order in which they arose: a line for each answer, and lines with
  the cost of forward passes.
- `ahead.jsonl` has answers that wait for an earlier one, while there are any.
- `run.json` has the key of the run and its options.

A partial last line, left by a process that was killed while it wrote, is cut off. Each line has a checksum of its other fields,
so that an edited answer or cost is detected.
"""

import json
from collections.abc import Mapping, Sequence as Items
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..core.checks import short
from ..json_lines import Line, append, encoded, opened, replaced, sealed, sealed_lines
from .items import Item, Key, options_text
from .metrics import Work

ANSWERS, BESIDE, AHEAD, RUN = "answers.jsonl", "beside.jsonl", "ahead.jsonl", "run.json"
# The fields that a line must have, and their kinds as `json_lines.is_a` reads them.
KEY_FIELDS: dict[str, Any] = {"task": str, "document": int, "options": dict}
TEXTS = ("answer", "finish", "error", "problem", "gold", "found", "note")
ROW_FIELDS = KEY_FIELDS | {"prompt": (str, [{"role": str, "content": str}]), "tokens": [int], "steps": int, "seed": int}
ROW_FIELDS |= dict.fromkeys(TEXTS, str) | {"scores": {str: float}, "score": float}
WORK_FIELDS = {"task": str, "work": dict.fromkeys(asdict(Work()), float)}
BESIDE_FIELDS = KEY_FIELDS | {"forwards": int, "computed": int, "wasted": int, "seconds": float, "decided_at": [int]}


def key_of(line: Line) -> Key:
    """Return the key of an answer's line."""
    return line["task"], line["document"], options_text(line["options"])


def answer_lines(path: Path) -> list[Line]:
    """Return the answers in a file, without a partial last line. Raises ValueError for a line that is not an answer."""
    return list(sealed_lines(path, ROW_FIELDS))


def beside_lines(folder: Path) -> list[Line]:
    """Return the lines of `beside.jsonl`, of answers and of work. Raises ValueError for any other line."""
    return list(sealed_lines(folder / BESIDE, lambda line: WORK_FIELDS if "work" in line else BESIDE_FIELDS))


def begin(folder: Path, asked: Mapping[str, Any], named: str = "--out", remedy: str = "give another folder") -> None:
    """Write `run.json` into a new folder. Raises ValueError for a folder that holds a run with another key.

    `machines` are not part of the key: those that the folder does not list yet are added. In the error, `named` is the user's
    name for the folder, and `remedy` the last part.
    """
    path = folder / RUN
    asked = json.loads(json.dumps(asked))
    answered = any((folder / name).exists() and (folder / name).stat().st_size for name in (ANSWERS, BESIDE, AHEAD))
    if path.exists():
        said = read_run(folder)
        if said["key"] == asked["key"]:
            known = said.get("machines", [])
            if not (new := [each for each in asked.get("machines", []) if each not in known]):
                return
            asked = said | {"machines": known + new}
        elif answered:
            raise ValueError(f"{named} {folder} holds a run with {parting(said['key'], asked['key'])}: {remedy}")
    elif answered:
        raise ValueError(f"{named} {folder} holds answers without {RUN}: {remedy}")
    folder.mkdir(parents=True, exist_ok=True)
    replaced(path, json.dumps(asked, indent=2, sort_keys=True).encode() + b"\n")


def read_run(folder: Path) -> dict[str, Any]:
    """Return `run.json`: the key of a run, and its options as they were given. Raises ValueError for a folder without a run."""
    path = folder / RUN
    if not path.is_file():
        raise ValueError(f"no run in {short(str(folder))}: it has no {RUN}; give a folder that `dlstep eval --out` wrote")
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: {short(str(error))}") from error
    if not isinstance(said, dict) or not isinstance(said.get("key"), dict):
        raise ValueError(f"{path} was not written by `dlstep eval`")
    return said


def parting(said: Any, asked: Any, name: str = "") -> str:
    """Return the first difference of two nested mappings, in words."""
    if isinstance(said, dict) and isinstance(asked, dict):
        for each in sorted({*said, *asked}):
            if json.dumps(said.get(each), sort_keys=True) != json.dumps(asked.get(each), sort_keys=True):
                return parting(said.get(each), asked.get(each), f"{name}.{each}" if name else each)
    return f"{name} {short(said)}, and now it is {short(asked)}"


class Checkpoint:
    """The answers of a run so far, and the files that they are written to."""

    def __init__(self, folder: Path, items: Items[Item]) -> None:
        self._items = items
        answered, last = answer_lines(folder / ANSWERS), -1
        places = {item.key: place for place, item in enumerate(items)}
        for number, row in enumerate(answered, 1):
            if (place := places.get(key_of(row), -1)) <= last:
                raise ValueError(f"{folder / ANSWERS}, line {number} is not an answer of this run: give another --out")
            last = place
        beside = {key_of(line) for line in beside_lines(folder) if "work" not in line}
        self.rows = [row for row in answered if key_of(row) in beside]
        ahead = [row for row in answer_lines(folder / AHEAD) if key_of(row) in beside and key_of(row) in places]
        if [key_of(row) for row in self.rows] != [item.key for item in items[: len(answered)]]:
            # Lines were deleted: the answers after the gap wait until the deleted ones are answered again.
            ahead, self.rows = ahead + self.rows, []
            replaced(folder / AHEAD, b"".join(encoded(sealed(row)) for row in ahead))
            (folder / ANSWERS).write_bytes(b"")
        self._ahead = {places[key_of(row)]: row for row in ahead}
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
        """Write an answer to `answers.jsonl` if all earlier answers are written, or else to the file of waiting answers."""
        append(self._beside, sealed(beside))  # written first, so every stored answer has its line here
        if place > len(self.rows):
            append(self._waiting, sealed(row))
        self._ahead[place] = row
        self._advance()

    def note_work(self, task: str, work: Line) -> None:
        """Write the cost of forward passes."""
        append(self._beside, sealed({"task": task, "work": work}))

    def close(self) -> None:
        """Close the files, and delete the file of waiting answers if the run is complete."""
        for file in (self._answers, self._beside, self._waiting):
            file.close()
        if len(self.rows) == len(self._items):
            self._ahead_path.unlink(missing_ok=True)

    def _advance(self) -> None:
        while (row := self._ahead.pop(len(self.rows), None)) is not None:
            append(self._answers, sealed(row))
            self.rows.append(row)
