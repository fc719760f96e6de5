"""The text report of a run: charts, wrong answers and slow requests; and the traces of answers, each decoded again alone."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence as Items
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ..core import DlstepError, Trace
from ..core.checks import short
from ..engine.config import engine_config
from ..engine.json_lines import is_a
from ..engine.run_lock import RunLock, check_free
from ..llm import LLM
from ..text.words import clipped, clipped_front, printable
from .checkpoint import Run, key_of
from .items import Key, items_of, read_documents
from .metrics import Pair, ratio
from .options import options_from
from .runner import key_of_run
from .versions import about

PARTS = 10  # parts of an answer
MOST_TOKENS = 8  # unmasked in one step; larger numbers are counted together
BAR = 30  # characters
TAIL = 60  # characters of a wrong answer


@dataclass(frozen=True, slots=True)
class Where:
    """Figures of a group's answers, each a ratio of sums. Each answer is divided into `PARTS` parts.

    `decided` is, for each part, the mean step at which its tokens got their final value, as a share of the steps of the answer.
    `spent` is the share of steps whose first undecided token was in each part; the rest of the steps came after the answer's
    last token. `taken` is the share of steps that decided 0, 1, ... and at least `MOST_TOKENS` tokens of the answer.
    """

    decided: tuple[float, ...]
    spent: tuple[float, ...]
    taken: tuple[float, ...]


def where(pairs: Items[Pair]) -> Where:
    """Return the figures of some answers."""
    ranks, spans = [0] * PARTS, [0] * PARTS
    spent, taken = [0] * PARTS, [0] * (MOST_TOKENS + 1)
    steps = 0
    for row, beside in pairs:
        decided, count = beside["decided_at"], len(row["tokens"])
        steps += row["steps"]
        for offset, step in enumerate(decided):
            ranks[part_of(offset, count)] += step
            spans[part_of(offset, count)] += row["steps"]
        # The first undecided token is at this offset or before it, until this token and all before it are decided.
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


class Chart(NamedTuple):
    """A bar chart of shares."""

    title: str
    words: str
    labels: list[str]
    shares: Items[float]


def charts_of(pairs: Items[Pair]) -> list[Chart]:
    """Return the charts of some answers."""
    found = where(pairs)
    parts = [str(number + 1) for number in range(PARTS)]
    most = max((number + 1 for number, share in enumerate(found.taken) if share), default=1)
    counts = [*map(str, range(MOST_TOKENS)), f"{MOST_TOKENS}+"][:most]
    after = max(0.0, 1 - sum(found.spent))
    return [
        Chart("Order of filling", "how far the steps were when each tenth was decided", parts, found.decided),
        Chart(
            "Steps by place",
            "share of steps whose first undecided token lay in each tenth",
            [*parts, "behind"],
            (*found.spent, after),
        ),
        Chart("Tokens of a step", "share of steps that decided so many tokens", counts, found.taken[:most]),
    ]


def part_of(offset: int, count: int) -> int:
    """Return the part that contains the token at `offset` of an answer of `count` tokens."""
    return min(PARTS - 1, offset * PARTS // count)


def wrong(pairs: Items[Pair]) -> list[Pair]:
    """Return the answers with a score below 1, the lowest score first, then in order."""
    return sorted((pair for pair in pairs if pair[0]["score"] < 1), key=lambda pair: pair[0]["score"])


def names_of(run: Run) -> dict[Key, str]:
    """Return the name of each answer for `--show`: task and document, and the number of its options if there are several."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(options for _, _, options in run.rows), 1)}
    return {
        (task, document, options): f"{task}/{document}" + (f"/{numbers[options]}" if len(numbers) > 1 else "")
        for task, document, options in run.rows
    }


def trace_path(folder: Path, name: str) -> Path:
    """Return the path of the trace of an answer."""
    return folder / "traces" / f"{name.replace('/', '-')}.jsonl"


def report_lines(run: Run, most: int) -> Iterator[str]:
    """Yield the report without its table, in lines of at most 80 characters; `most` limits the
    answers listed per group."""
    names = names_of(run)
    for group, pairs in run.groups.items():
        task, options = group
        yield ""
        yield clipped(f"== {task if options == '{}' else f'{task} with {options}'} ==", 80)
        yield ""
        if len(scores := run.scores(group)) > 1:
            yield "Right by " + ", ".join(f"{reading} {100 * score:.1f} %" for reading, score in scores.items())
            yield ""
        for chart in charts_of(pairs):
            yield f"{chart.title}: {chart.words}"
            width = max(map(len, chart.labels))
            for label, share in zip(chart.labels, chart.shares, strict=True):
                yield f"  {label:>{width}} {100 * share:5.1f} % {'#' * round(BAR * share)}".rstrip()
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
        for row, beside in sorted(pairs, key=lambda pair: -pair[1]["seconds"])[:most]:
            told = f"{beside['seconds']:.2f} s, {beside['forwards']} forwards, {len(row['tokens'])} tokens"
            yield clipped(f"  {names[key_of(row)]}: {told}, ended by {row['finish']}", 80)


def reason(row: Mapping[str, object]) -> str:
    """Return a short reason why an answer is wrong."""
    if row["error"] or row["note"]:
        return printable(str(row["error"] or row["note"]))
    return printable(f"{row['found']} instead of {row['gold']}")


def row_named(run: Run, name: str) -> Mapping[str, Any]:
    """Return the answer with this name. Raises ValueError if there is none."""
    names = {each: key for key, each in names_of(run).items()}
    if name not in names:
        raise ValueError(f"--show {short(name)} is not an answer of {run.folder}: names are like {next(iter(names), 'none')}")
    return run.rows[names[name]]


def shown(run: Run, names: Items[str]) -> list[Trace]:
    """Decode answers again, each alone, save their traces in the folder of the run, and return the traces.

    Raises ValueError if the model, its options or the problems differ from those of the run, if these options were Python
    values, or if another process writes to its folder, and DlstepError if an answer differs.
    """
    check_free(run.folder)
    rows: list[Mapping[str, Any]] = [row_named(run, name) for name in names]
    told: Any = run.asked.get("told")
    if not is_a(told, {"eval": dict, "engine": dict}):
        raise ValueError(f"{run.folder} was not written by the command `dlstep eval`, so --show cannot read its options")
    options = options_from(told["eval"])
    documents = read_documents(options)
    llm = LLM.from_config(engine_config(told["engine"]))
    key = key_of_run(options, documents, about(llm.engine))
    for part in ("engine", "problems"):
        if key[part] != run.asked["key"][part]:
            raise ValueError(f"{part} of {run.folder} was {short(run.asked['key'][part])} and is now {short(key[part])}")
    items = {item.key: item for item in items_of(options, documents)}
    traces: list[Trace] = []
    with closing(RunLock(run.folder)):
        for name, row in zip(names, rows, strict=True):
            item = items[key_of(row)]
            session = llm.session()
            session.submit(item.ids(llm.engine), replace(item.params, seed=row["seed"]))
            session.run()
            found = list(session.output(0).token_ids)
            if found != row["tokens"]:
                raise DlstepError(f"{name} decoded alone gives {short(found)}, but {short(row['tokens'])} in the run")
            path = trace_path(run.folder, name)
            path.parent.mkdir(exist_ok=True)
            session.trace.save(path)
            traces.append(session.trace)
            session.close()
    return traces


def untraced(run: Run, most: int) -> list[str]:
    """Return the names of those of the first `most` wrong answers (lowest score first) that have no trace yet."""
    names = names_of(run)
    missed = wrong([pair for pairs in run.groups.values() for pair in pairs])[:most]
    return [name for row, _ in missed if not trace_path(run.folder, name := names[key_of(row)]).is_file()]
