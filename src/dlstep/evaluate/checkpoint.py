"""The files of a run.

- `answers.jsonl`: a line for each item, in their order.
- `beside.jsonl`: values that depend on the batch, and costs of forward passes, as they arise.
- `ahead.jsonl`: answers that wait for an earlier one, while there are any.
- `run.json`: the key of the run and its options.

A partial last line, left by a killed process, is cut off. Each line has a checksum of its other
fields, so that an edited answer or cost is detected.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.checks import short
from ..engine.json_lines import Line, append, encoded, opened, parsed, replaced, sealed, sealed_lines
from .intervals import PairedComparison, compared
from .items import Item, Key, options_text
from .metrics import ROUND, Answers, ForwardSums, Pair, ratio

ANSWERS, BESIDE, AHEAD, RUN = "answers.jsonl", "beside.jsonl", "ahead.jsonl", "run.json"
# The fields that a line must have, and their kinds as `json_lines.is_a` reads them.
KEY_FIELDS: dict[str, Any] = {"task": str, "document": int, "options": dict}
ROW_FIELDS = {
    **KEY_FIELDS, "prompt": (str, [{"role": str, "content": str}]), "answer": str, "tokens": [int], "steps": int,
    "finish": str, "error": str, "seed": int, "problem": str, "gold": str, "found": str, "note": str,
    "scores": {str: float}, "score": float,
}  # fmt: skip
WORK_FIELDS: dict[str, Any] = {"task": str, "work": dict.fromkeys(asdict(ForwardSums()), float)}
BESIDE_FIELDS = KEY_FIELDS | {"forwards": int, "computed": int, "wasted": int, "seconds": float, "decided_at": [int]}


def key_of(line: Line) -> Key:
    """Return the key of an answer's line."""
    return line["task"], line["document"], options_text(line["options"])


def answer_lines(path: Path) -> list[Line]:
    """Return the answers in a file. Raises ValueError for a line that is not an answer."""
    return list(sealed_lines(path, ROW_FIELDS))


def beside_lines(folder: Path) -> list[Line]:
    """Return the lines of `beside.jsonl`, of answers and of work. Raises ValueError for others."""
    return list(sealed_lines(folder / BESIDE, lambda line: WORK_FIELDS if "work" in line else BESIDE_FIELDS))


def begin(folder: Path, settings: Mapping[str, Any], named: str = "--out", remedy: str = "give another folder") -> None:
    """Write `run.json` into a new folder. Raises ValueError for a folder with another key.

    `machines` are not part of the key: new ones are added to the list. In the error, `named` is the
    user's name for the folder, and `remedy` the last part.
    """
    path = folder / RUN
    settings = json.loads(json.dumps(settings))
    answered = any((folder / name).exists() and (folder / name).stat().st_size for name in (ANSWERS, BESIDE, AHEAD))
    if path.exists():
        stored = read_run(folder)
        if stored["key"] == settings["key"]:
            known = stored.get("machines", [])
            if not (new := [machine for machine in settings.get("machines", []) if machine not in known]):
                return
            settings = stored | {"machines": known + new}
        elif answered:
            raise ValueError(f"{named} {folder} holds a run with {difference(stored['key'], settings['key'])}: {remedy}")
    elif answered:
        raise ValueError(f"{named} {folder} holds answers without {RUN}: {remedy}")
    folder.mkdir(parents=True, exist_ok=True)
    replaced(path, json.dumps(settings, indent=2, sort_keys=True).encode() + b"\n")


def read_run(folder: Path) -> dict[str, Any]:
    """Return `run.json`. Raises ValueError for a folder without a run."""
    path = folder / RUN
    if not path.is_file():
        raise ValueError(f"no run in {short(str(folder))}: it has no {RUN}; give a folder that `dlstep eval --out` wrote")
    settings = parsed(path.read_bytes(), path)
    if not isinstance(settings, dict) or not isinstance(settings.get("key"), dict):
        raise ValueError(f"{path} was not written by `dlstep eval`")
    return settings


def difference(stored: Any, now: Any, name: str = "") -> str:
    """Return the first difference of two nested mappings as a phrase."""
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in sorted({*stored, *now}):
            if json.dumps(stored.get(key), sort_keys=True) != json.dumps(now.get(key), sort_keys=True):
                return difference(stored.get(key), now.get(key), f"{name}.{key}" if name else key)
    return f"{name} {short(stored)}, and now it is {short(now)}"


def _ordered(path: Path, places: Mapping[Key, int]) -> list[Line]:
    """Return the answers in a file. Raises ValueError for one of another run or out of order."""
    answered, last = answer_lines(path), -1
    for number, row in enumerate(answered, 1):
        if (place := places.get(key_of(row), -1)) <= last:
            raise ValueError(f"{path}, line {number} is not an answer of this run: give another --out")
        last = place
    return answered


class RunCheckpoint:
    """The answers of a run so far, and their files. Raises ValueError for those of another run."""

    def __init__(self, folder: Path, items: Sequence[Item]) -> None:
        self._items = items
        places = {item.key: place for place, item in enumerate(items)}
        answered = _ordered(folder / ANSWERS, places)
        beside = {key_of(line) for line in beside_lines(folder) if "work" not in line}
        self.rows = [row for row in answered if key_of(row) in beside]
        ahead = [row for row in answer_lines(folder / AHEAD) if key_of(row) in beside and key_of(row) in places]
        if [key_of(row) for row in self.rows] != [item.key for item in items[: len(answered)]]:
            # Lines were deleted: later answers wait until the deleted ones are answered again.
            ahead, self.rows = ahead + self.rows, []
            replaced(folder / AHEAD, b"".join(encoded(sealed(row)) for row in ahead))
            (folder / ANSWERS).write_bytes(b"")
        self._ahead = {places[key_of(row)]: row for row in ahead}
        self._folder = folder
        self._answers, self._beside, self._waiting = (opened(folder / name) for name in (ANSWERS, BESIDE, AHEAD))
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
        """Write an answer to `answers.jsonl`, or to `ahead.jsonl` if an earlier one is missing."""
        append(self._beside, sealed(beside))  # first, so that every stored answer has its line here
        if place > len(self.rows):
            append(self._waiting, sealed(row))
        self._ahead[place] = row
        self._advance()

    def note_work(self, task: str, work: ForwardSums) -> None:
        """Write the cost of forward passes."""
        rounded = {name: round(value, ROUND) for name, value in asdict(work).items()}
        append(self._beside, sealed({"task": task, "work": rounded}))

    def close(self) -> None:
        """Close the files, and delete the file of waiting answers if the run is complete."""
        for file in (self._answers, self._beside, self._waiting):
            file.close()
        if len(self.rows) == len(self._items):
            (self._folder / AHEAD).unlink(missing_ok=True)

    def _advance(self) -> None:
        while (row := self._ahead.pop(len(self.rows), None)) is not None:
            append(self._answers, sealed(row))
            self.rows.append(row)


Group = tuple[str, str]  # task, options as JSON


@dataclass(frozen=True, slots=True)
class EvalRun:
    """A folder of results: `run.json` as `settings`, and by key `rows` and `beside`, in order."""

    folder: Path
    settings: Mapping[str, Any]
    rows: Mapping[Key, Mapping[str, Any]]
    beside: Mapping[Key, Mapping[str, Any]]
    work: Mapping[str, ForwardSums]

    @property
    def expected(self) -> int:
        """The number of answers of the complete run."""
        key = self.settings["key"]
        return sum(each["count"] for each in key["problems"].values()) * len(key["eval"]["grid"])

    @property
    def groups(self) -> dict[Group, list[Pair]]:
        """The answers of each task with each set of options."""
        groups: dict[Group, list[Pair]] = {}
        for key, row in self.rows.items():
            groups.setdefault((key[0], key[2]), []).append((row, self.beside[key]))
        return groups

    @property
    def sums(self) -> dict[Group, Answers]:
        """The sums over the answers of each group."""
        return {group: Answers.total(Answers.of(*pair) for pair in pairs) for group, pairs in self.groups.items()}

    @property
    def seconds(self) -> dict[Group, float]:
        """The time of each group: that of its task, shared in proportion to forward passes."""
        forwards, sums = Counter[str](), self.sums
        for (task, _), each in sums.items():
            forwards[task] += each.forwards
        return {key: self.work[key[0]].wall_seconds * ratio(each.forwards, forwards[key[0]]) for key, each in sums.items()}

    def answers(self) -> Answers:
        """Return the sums over all answers."""
        return Answers.total(self.sums.values())

    def scores(self, group: Group) -> dict[str, float]:
        """Return the mean score by each reading, over answers with this reading and failed ones."""
        rows = [row["scores"] for row, _ in self.groups[group]]
        each = {name: [row.get(name, 0.0) for row in rows if name in row or not row] for row in rows for name in row}
        return {name: sum(scores) / len(scores) for name, scores in each.items()}


def read(folder: str | Path) -> EvalRun:
    """Return the run in a folder, complete or not. Raises ValueError if there is none."""
    folder = Path(folder)
    settings = read_run(folder)
    rows = {key_of(row): row for row in answer_lines(folder / ANSWERS)}
    beside: dict[Key, Mapping[str, Any]] = {}
    work: dict[str, ForwardSums] = {}
    for line in beside_lines(folder):
        if "work" in line:
            passes = ForwardSums(**{name: line["work"][name] for name in WORK_FIELDS["work"]})
            work[line["task"]] = work.get(line["task"], ForwardSums()) + passes
        else:
            beside[key_of(line)] = line  # the last one counts if an answer was decoded again
    if lost := next((key for key in rows if key not in beside), None):
        raise ValueError(
            f"{folder / BESIDE} has no line for {lost[0]} {lost[1]}, so this line was deleted: run the same command again, "
            "which answers the problem again"
        )
    if apart := next((key for key, row in rows.items() if len(row["tokens"]) != len(beside[key]["decided_at"])), None):
        raise ValueError(
            f"{folder / ANSWERS} and {folder / BESIDE} contain different answers to {apart[0]} {apart[1]}: delete the line of "
            "this problem in the first file and run the same command again, which answers the problem again"
        )
    return EvalRun(folder, settings, rows, beside, work)


def matched(run: EvalRun, other: EvalRun) -> Iterator[tuple[Group, str, PairedComparison]]:
    """Yield each group, the options of its match in the other run, and their comparison.

    Groups are matched by their options, or with the only set of options of the other run. Problems
    are matched by content; only common ones are compared. Raises ValueError for runs of different
    problems.
    """
    theirs = other.groups
    for group, pairs in run.groups.items():
        of_task = [each for each in theirs if each[0] == group[0]]
        match = group if group in theirs else of_task[0] if len(of_task) == 1 else None
        if match is None:
            continue
        mine, known = by_problem(pairs), by_problem(theirs[match])
        both = sorted(mine.keys() & known.keys())
        if len(both) < min(len(mine), len(known)):
            raise ValueError(
                f"{run.folder} and {other.folder} asked different problems of {group[0]}: {len(both)} of the {len(mine)} in "
                f"the first are among the {len(known)} in the second; give both the same file and the same --problem_seed"
            )
        yield group, match[1], compared([mine[key] for key in both], [known[key] for key in both])


def failure(row: Mapping[str, Any]) -> str:
    """Return the problem of a failed answer and the reason of the failure, as one text."""
    return f"{row['task']}/{row['document']}: {row['error']}"


def by_problem(pairs: Sequence[Pair]) -> dict[tuple[str, int], Pair]:
    """Return the answers by the digest of their problem; equal problems are numbered in order."""
    counts = Counter[str]()
    numbered: dict[tuple[str, int], Pair] = {}
    for pair in pairs:
        problem = pair[0]["problem"]
        numbered[problem, counts[problem]] = pair
        counts[problem] += 1
    return numbered
