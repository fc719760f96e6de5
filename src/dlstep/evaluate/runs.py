"""A run as its files tell it: the answers with what lies beside them, and the work of each task."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence as Items
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .checkpoint import ANSWERS, BESIDE, BESIDE_FIELDS, answer_lines, check, key_of, read_run, sealed_lines
from .intervals import Comparison, compared
from .items import Key
from .metrics import Answers, Pair, Work, ratio

Group = tuple[str, str]  # task, options as JSON
WORK_FIELDS: dict[str, Any] = {field.name: float for field in fields(Work)}


@dataclass(frozen=True, slots=True)
class Run:
    """A folder of results. `asked` is its `run.json`; `rows` and `beside` are by key, in the order of the items."""

    folder: Path
    asked: Mapping[str, Any]
    rows: Mapping[Key, Mapping[str, Any]]
    beside: Mapping[Key, Mapping[str, Any]]
    work: Mapping[str, Work]

    @property
    def expected(self) -> int:
        """How many answers the run has when it is complete."""
        key = self.asked["key"]
        return sum(each["count"] for each in key["problems"].values()) * len(key["eval"]["grid"])

    @property
    def groups(self) -> dict[Group, list[Pair]]:
        """The answers of each task with each set of options."""
        found: dict[Group, list[Pair]] = {}
        for key, row in self.rows.items():
            found.setdefault((key[0], key[2]), []).append((row, self.beside[key]))
        return found

    def answers(self, group: Group | None = None) -> Answers:
        """The sums over one group, or over all answers."""
        chosen = self.groups
        pairs = chosen[group] if group is not None else [pair for each in chosen.values() for pair in each]
        return Answers.total(Answers.of(*pair) for pair in pairs)

    def scores(self, group: Group) -> dict[str, float]:
        """The mean score of a group by each reading, over the answers that it reads and those that failed."""
        rows = [row["scores"] for row, _ in self.groups[group]]
        each = {name: [row.get(name, 0.0) for row in rows if name in row or not row] for row in rows for name in row}
        return {name: sum(scores) / len(scores) for name, scores in each.items()}


def read(folder: Path) -> Run:
    """The run in a folder, complete or not. Raises ValueError where there is none, or a line that is none of a run."""
    asked = read_run(folder)
    rows = {key_of(row): row for row in answer_lines(folder / ANSWERS)}
    beside: dict[Key, Mapping[str, Any]] = {}
    work: dict[str, Work] = {}
    for number, line in sealed_lines(folder / BESIDE, BESIDE_FIELDS):
        if "work" in line:
            done = check(folder / BESIDE, number, line["work"], WORK_FIELDS)
            task = str(line.get("task"))
            work[task] = work.get(task, Work()) + Work(*(done[name] for name in WORK_FIELDS))
        else:
            beside[key_of(line)] = line  # of an answer that was lost and given again, the last
    if lost := next((key for key in rows if key not in beside), None):
        raise ValueError(
            f"{folder / BESIDE} says nothing of {lost[0]} {lost[1]}, so a line was deleted: run the same command again, which "
            "answers the problem anew"
        )
    return Run(folder, asked, rows, beside, work)


def shared_seconds(run: Run, sums: Mapping[Group, Answers]) -> dict[Group, float]:
    """Return the wall time of each group: that of its task, shared out by the forward passes of the answers in `sums`."""
    forwards: Counter[str] = Counter()
    for (task, _), each in sums.items():
        forwards[task] += each.forwards
    return {group: run.work[group[0]].wall_seconds * ratio(each.forwards, forwards[group[0]]) for group, each in sums.items()}


def matched(run: Run, other: Run) -> Iterator[tuple[Group, str, Comparison]]:
    """Each group of a run compared on the problems that both have answered, with the options of the other's group.

    Groups match by their options. Where the other run has one set of options only, every group is compared with that. Problems
    match by their content, wherever they stand in their files. Raises ValueError for runs of different problems.
    """
    theirs = other.groups
    for group, pairs in run.groups.items():
        alone = [each for each in theirs if each[0] == group[0]]
        match = group if group in theirs else alone[0] if len(alone) == 1 else None
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


def by_problem(pairs: Items[Pair]) -> dict[tuple[str, int], Pair]:
    """Answers by the digest of their problem; equal problems are counted in their order."""
    asked = Counter[str]()
    found: dict[tuple[str, int], Pair] = {}
    for pair in pairs:
        problem = pair[0]["problem"]
        found[problem, asked[problem]] = pair
        asked[problem] += 1
    return found
