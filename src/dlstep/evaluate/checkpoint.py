"""The files of an evaluation, and reading them again.

- `answers.jsonl`: a line for each request, in their order once the run is complete.
- `beside.jsonl`: values that depend on the batch, as they arise.
- `scores.jsonl`: a line of scores for each answer, written at the end.
- `run.json`: the key of the run, and the options as they were given.

Each line has a checksum of its other fields, so that an edited answer, cost or score is detected.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..batch.checkpoint import ANSWERS, BESIDE, AnswerFiles, read_settings
from ..core import Json
from ..engine.json_lines import Line, encoded, opened, replaced, sealed, sealed_lines
from .items import Item, Key, options_text
from .metrics import Answers, Pair, compared

SCORES = "scores.jsonl"
UNSCORED = {"problem": "", "gold": "", "found": "", "note": "not scored", "scores": {}, "score": 0.0}

Group = tuple[str, str]  # task, options as JSON


def key_of(line: Line) -> Key:
    """Return the key of a line."""
    return line["task"], line["document"], options_text(line["options"])


def lines_of(path: Path) -> dict[Key, Line]:
    """Return the lines of a file by key; the last one of equal keys. Raises ValueError for an altered line."""
    return {key_of(line): line for line in sealed_lines(path)}


class EvalCheckpoint(AnswerFiles):
    """The answers of an evaluation so far, by key, and their files."""

    def __init__(self, folder: Path, settings: Json) -> None:
        super().__init__(folder, settings, "--out", "give another folder")

    def load(self) -> None:
        """Read the answers so far."""
        beside = lines_of(self.folder / BESIDE)
        self.rows = {key: row for key, row in lines_of(self.folder / ANSWERS).items() if key in beside}

    def note(self, item: Item, row: Line, beside: Line) -> None:
        """Write an answer as it arrives."""
        self.append(sealed(row), sealed(beside))
        self.rows[item.key] = row

    def order(self, items: Sequence[Item]) -> list[Line]:
        """Move the answers to these items to the end of the file, in their order, and return them."""
        own = {item.key: self.rows.pop(item.key) for item in items}
        self.rows |= own
        self._answers.close()
        replaced(self.folder / ANSWERS, b"".join(encoded(sealed(row)) for row in self.rows.values()))
        self._answers = self._held.enter_context(opened(self.folder / ANSWERS))
        return list(own.values())

    def score(self, lines: Sequence[Line]) -> None:
        """Write the scores."""
        replaced(self.folder / SCORES, b"".join(encoded(sealed(line)) for line in lines))


class EvalRun(NamedTuple):
    """A folder of results: `run.json` as `settings`, and by key `rows` (with scores) and `beside`, in order."""

    folder: Path
    settings: Json
    rows: Mapping[Key, Line]
    beside: Mapping[Key, Line]

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

    def answers(self) -> Answers:
        """Return the figures of all answers."""
        return Answers.of([pair for pairs in self.groups.values() for pair in pairs])

    def scores(self, group: Group) -> dict[str, float]:
        """Return the mean score by each reading, over answers with this reading and failed ones."""
        rows = [row["scores"] for row, _ in self.groups[group]]
        each = {name: [row.get(name, 0.0) for row in rows if name in row or not row] for row in rows for name in row}
        return {name: sum(scores) / len(scores) for name, scores in each.items()}


def read(folder: str | Path) -> EvalRun:
    """Return the run in a folder, complete or not. Raises ValueError if there is none."""
    folder = Path(folder)
    settings, beside = read_settings(folder), lines_of(folder / BESIDE)
    answers, scores = lines_of(folder / ANSWERS), lines_of(folder / SCORES)
    rows = {key: {**row, **scores.get(key, UNSCORED)} for key, row in answers.items() if key in beside}
    return EvalRun(folder, settings, rows, {key: beside[key] for key in rows})


def failure(row: Line) -> str:
    """Return the problem of a failed answer and the reason of the failure, as one text."""
    return f"{row['task']}/{row['document']}: {row['error']}"


def matched_gains(run: EvalRun, other: EvalRun) -> Iterator[tuple[Group, Json]]:
    """Yield each group that has a match in the other run, with its gains over that match.

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
        mine, known = ({row["problem"]: (row, beside) for row, beside in each} for each in (pairs, theirs[match]))
        both = sorted(mine.keys() & known.keys())
        if len(both) < min(len(mine), len(known)):
            raise ValueError(
                f"{run.folder} and {other.folder} asked different problems of {group[0]}: {len(both)} of the {len(mine)} in "
                f"the first are among the {len(known)} in the second; give both the same file and the same --problem_seed"
            )
        yield group, compared([mine[key] for key in both], [known[key] for key in both])
