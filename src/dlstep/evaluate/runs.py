"""A run as read from its files: the lines of each answer in `answers.jsonl` and `beside.jsonl`, and the work of each task."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence as Items
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .checkpoint import ANSWERS, BESIDE, answer_lines, beside_lines, key_of, read_run
from .intervals import Comparison, compared
from .items import Key
from .metrics import Answers, Pair, Work, ratio

Group = tuple[str, str]  # task, options as JSON


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
        """The number of answers of the complete run."""
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
        """Return the sums over one group, or over all answers."""
        chosen = self.groups
        pairs = chosen[group] if group is not None else [pair for each in chosen.values() for pair in each]
        return Answers.total(Answers.of(*pair) for pair in pairs)

    def scores(self, group: Group) -> dict[str, float]:
        """Return the mean score of a group by each reading, over the answers with this reading and those that failed."""
        rows = [row["scores"] for row, _ in self.groups[group]]
        each = {name: [row.get(name, 0.0) for row in rows if name in row or not row] for row in rows for name in row}
        return {name: sum(scores) / len(scores) for name, scores in each.items()}


def read(folder: Path) -> Run:
    """Return the run in a folder, complete or not. Raises ValueError if there is none, or for an invalid line."""
    asked = read_run(folder)
    rows = {key_of(row): row for row in answer_lines(folder / ANSWERS)}
    beside: dict[Key, Mapping[str, Any]] = {}
    work: dict[str, Work] = {}
    for line in beside_lines(folder):
        if "work" in line:
            task, names = line["task"], asdict(Work())
            work[task] = work.get(task, Work()) + Work(**{name: line["work"][name] for name in names})
        else:
            beside[key_of(line)] = line  # the last one counts, if an answer was lost and decoded again
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
    return Run(folder, asked, rows, beside, work)


def shared_seconds(run: Run, sums: Mapping[Group, Answers]) -> dict[Group, float]:
    """Return the wall time of each group: the time of its task, divided in proportion to the forward passes in `sums`."""
    forwards: Counter[str] = Counter()
    for (task, _), each in sums.items():
        forwards[task] += each.forwards
    return {group: run.work[group[0]].wall_seconds * ratio(each.forwards, forwards[group[0]]) for group, each in sums.items()}


def matched(run: Run, other: Run) -> Iterator[tuple[Group, str, Comparison]]:
    """Yield each group, the options of its group in the other run, and their comparison on the problems that both answered.

    Groups are matched by their options; if the other run has a single set of options, every group is compared with it. Problems
    are matched by their content, at any place in their files. Raises ValueError for runs of different problems.
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
    """Return the answers by the digest of their problem; equal problems are numbered in order."""
    asked = Counter[str]()
    found: dict[tuple[str, int], Pair] = {}
    for pair in pairs:
        problem = pair[0]["problem"]
        found[problem, asked[problem]] = pair
        asked[problem] += 1
    return found
