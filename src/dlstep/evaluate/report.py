"""The course of a run: order of filling, where steps were spent, wrong answers and slow requests."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence as Items
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from ..core.words import clipped, clipped_front, printable
from .checkpoint import key_of
from .items import Key
from .metrics import Pair, ratio
from .runs import Group, Run

PARTS = 10  # of an answer
MOST_TOKENS = 8  # decided in one step that are told apart
BAR = 30  # characters
TAIL = 60  # characters of a wrong answer


@dataclass(frozen=True, slots=True)
class Where:
    """Figures of a group's answers, each a ratio of sums; `PARTS` parts of an answer from its beginning to its end.

    `decided` says how far the steps of an answer had come when its tokens in each part got what they are, 0 to 1. `spent` is
    the share of steps that began with their first undecided token in each part; what is missing to 1 came behind the answer's
    end. `taken` is the share of steps that decided so many tokens of the answer, from 0 to `MOST_TOKENS` and more.
    """

    decided: tuple[float, ...]
    spent: tuple[float, ...]
    taken: tuple[float, ...]


def where(pairs: Items[Pair]) -> Where:
    """The figures of some answers."""
    ranks, spans = [0] * PARTS, [0] * PARTS
    spent, taken = [0] * PARTS, [0] * (MOST_TOKENS + 1)
    steps = 0
    for row, beside in pairs:
        decided, count = beside["decided_at"], len(row["tokens"])
        steps += row["steps"]
        for offset, step in enumerate(decided):
            ranks[part_of(offset, count)] += step
            spans[part_of(offset, count)] += row["steps"]
        # A token is behind the first undecided one until all before it, and itself, are decided.
        known = 0
        for offset, settled in enumerate(accumulate(decided, max)):
            spent[part_of(offset, count)] += settled - known
            known = settled
        each = Counter(decided)
        for tokens in each.values():
            taken[min(tokens, MOST_TOKENS)] += 1
        taken[0] += row["steps"] - len(each.keys() - {0})
    return Where(
        tuple(ratio(over, under) for over, under in zip(ranks, spans, strict=True)),
        tuple(ratio(each, steps) for each in spent),
        tuple(ratio(each, steps) for each in taken),
    )


def part_of(offset: int, count: int) -> int:
    """The part of an answer of `count` tokens that a token lies in."""
    return min(PARTS - 1, offset * PARTS // count)


def wrong(pairs: Items[Pair]) -> list[Pair]:
    """The answers that are not fully right, the worst first, then in order."""
    return sorted((pair for pair in pairs if pair[0]["score"] < 1), key=lambda pair: pair[0]["score"])


def slowest(pairs: Items[Pair]) -> list[Pair]:
    """The answers by the time that they took, the longest first."""
    return sorted(pairs, key=lambda pair: -pair[1]["seconds"])


def names_of(run: Run) -> dict[Key, str]:
    """Return the name of each answer for `--show`: task and document, and the number of its options if there are several."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(options for _, _, options in run.rows), 1)}
    return {
        (task, document, options): f"{task}/{document}" + (f"/{numbers[options]}" if len(numbers) > 1 else "")
        for task, document, options in run.rows
    }


def trace_path(folder: Path, name: str) -> Path:
    """The file of the trace of an answer."""
    return folder / "traces" / f"{name.replace('/', '-')}.jsonl"


def title(group: Group) -> str:
    """The heading of a group."""
    return group[0] if group[1] == "{}" else f"{group[0]} with {group[1]}"


def scores_line(run: Run, group: Group) -> str:
    """The share of right answers by each reading; empty where there is one reading."""
    scores = run.scores(group)
    told = ", ".join(f"{name} {100 * score:.1f} %" for name, score in scores.items())
    return f"Right by {told}" if len(scores) > 1 else ""


def report_lines(run: Run, most: int) -> Iterator[str]:
    """The report in lines of at most 80 characters, without the table; at most `most` wrong and `most` slow answers each."""
    names = names_of(run)
    for group, pairs in run.groups.items():
        found = where(pairs)
        yield ""
        yield clipped(f"== {title(group)} ==", 80)
        yield ""
        if line := scores_line(run, group):
            yield from (line, "")
        yield "Order of filling: how far the steps were when each tenth was decided"
        yield from bars([f"{number + 1:2}" for number in range(PARTS)], found.decided)
        yield ""
        yield "Where steps were spent: those whose first undecided token lay in each tenth"
        behind = max(0.0, 1 - sum(found.spent))
        yield from bars([*[f"{number + 1:2}" for number in range(PARTS)], "behind"], (*found.spent, behind))
        yield ""
        yield "How many tokens a step decided, in shares of the steps"
        labels = [str(number) for number in range(MOST_TOKENS)] + [f"{MOST_TOKENS}+"]
        yield from bars(labels, found.taken)
        yield ""
        missed = wrong(pairs)
        yield f"Wrong answers: {len(missed)} of {len(pairs)}"
        for row, _ in missed[:most]:
            yield clipped(f"  {names[key_of(row)]}: {reason(row)}", 80)
            yield f"    ...{clipped_front(printable(str(row['answer']).strip()), TAIL).removeprefix('...')}"
        if missed:
            yield "Step into the first:"
            yield f"  dlstep report {run.folder} --show {names[key_of(missed[0][0])]}"
        yield ""
        yield "Slowest requests"
        for row, beside in slowest(pairs)[:most]:
            told = f"{beside['seconds']:.2f} s, {beside['forwards']} forwards, {len(row['tokens'])} tokens"
            yield clipped(f"  {names[key_of(row)]}: {told}, ended by {row['finish']}", 80)


def reason(row: Mapping[str, object]) -> str:
    """Why an answer is wrong, in a few words."""
    if row["error"] or row["note"]:
        return printable(str(row["error"] or row["note"]))
    return printable(f"{row['found']} instead of {row['gold']}")


def bars(labels: Items[str], shares: Items[float]) -> Iterator[str]:
    """A line with a bar for each share."""
    width = max(map(len, labels))
    for label, share in zip(labels, shares, strict=True):
        yield f"  {label:>{width}} {100 * share:5.1f} % {'#' * round(BAR * share)}".rstrip()
