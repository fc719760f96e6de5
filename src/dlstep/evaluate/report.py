"""The text report of a run, and traces of answers, each decoded again alone."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ..core import DlstepError, Trace
from ..core.checks import short
from ..engine.config import engine_config
from ..engine.json_lines import is_a
from ..engine.run_lock import RunLock, check_free
from ..llm import LLM
from ..text.words import clipped, clipped_front, counted, printable
from .checkpoint import EvalRun, key_of
from .items import Key, items_of, read_documents
from .metrics import Pair, ratio
from .options import options_from
from .runner import key_of_run
from .versions import about

PARTS = 10  # parts of an answer
MOST_TOKENS = 8  # unmasked in one step; larger numbers are counted together
BAR = 30  # characters
TAIL = 60  # characters of a wrong answer


def where(pairs: Sequence[Pair]) -> tuple[list[float], list[float], list[float]]:
    """Return three statistics of answers, each a ratio of sums. An answer is divided into `PARTS` parts.

    First, for each part, the mean step at which its tokens got their final value, as a share of the
    steps of the answer. Second, the share of steps whose first masked position was in each part;
    the remaining steps came after the last token was unmasked. Third, the share of steps that unmasked 0, 1,
    ... and at least `MOST_TOKENS` tokens of the answer.
    """
    ranks, spans, spent, per_step = [0] * PARTS, [0] * PARTS, [0] * PARTS, [0] * (MOST_TOKENS + 1)
    for row, beside in pairs:
        unmasked_at, steps = beside["decided_at"], row["steps"]
        # The first masked position is at `offset` or before until all tokens up to it are there.
        known = 0
        for offset, (step, settled) in enumerate(zip(unmasked_at, accumulate(unmasked_at, max), strict=True)):
            part = min(PARTS - 1, offset * PARTS // len(unmasked_at))
            ranks[part] += step
            spans[part] += steps
            spent[part] += settled - known
            known = settled
        counts = Counter(unmasked_at)
        for tokens in counts.values():
            per_step[min(tokens, MOST_TOKENS)] += 1
        per_step[0] += steps - len(counts.keys() - {0})
    total = sum(row["steps"] for row, _ in pairs)
    unmasked = [ratio(over, under) for over, under in zip(ranks, spans, strict=True)]
    return unmasked, [ratio(steps, total) for steps in spent], [ratio(steps, total) for steps in per_step]


class Chart(NamedTuple):
    """A bar chart of shares."""

    title: str
    words: str
    labels: list[str]
    shares: Sequence[float]


def charts_of(pairs: Sequence[Pair]) -> list[Chart]:
    """Return the charts of some answers."""
    unmasked, spent, per_step = where(pairs)
    parts = [str(number + 1) for number in range(PARTS)]
    most = max((number + 1 for number, share in enumerate(per_step) if share), default=1)
    counts = [*map(str, range(MOST_TOKENS)), f"{MOST_TOKENS}+"][:most]
    masked_in, after = "share of steps whose first masked position was in each tenth", max(0.0, 1 - sum(spent))
    return [
        Chart("Order of unmasking", "how far the steps were when each tenth was unmasked", parts, unmasked),
        Chart("Steps by place", masked_in, [*parts, "after"], (*spent, after)),
        Chart("Tokens of a step", "share of steps that unmasked so many tokens", counts, per_step[:most]),
    ]


def wrong(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the answers with a score below 1, the lowest score first, then in order."""
    return sorted((pair for pair in pairs if pair[0]["score"] < 1), key=lambda pair: pair[0]["score"])


def names_of(run: EvalRun) -> dict[Key, str]:
    """Return the name of each answer for `--show`, such as `gsm8k/7` or `gsm8k/7/2`."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(options for _, _, options in run.rows), 1)}
    suffixes = {text: f"/{number}" if len(numbers) > 1 else "" for text, number in numbers.items()}
    return {key: f"{key[0]}/{key[1]}{suffixes[key[2]]}" for key in run.rows}


def trace_path(folder: Path, name: str) -> Path:
    """Return the path of the trace of an answer."""
    return folder / "traces" / f"{name.replace('/', '-')}.jsonl"


def report_lines(run: EvalRun, most: int) -> Iterator[str]:
    """Yield the report without its table, at most 80 characters per line."""
    names = names_of(run)
    for (task, options), pairs in run.groups.items():
        yield from ("", clipped(f"== {task if options == '{}' else f'{task} with {options}'} ==", 80), "")
        if len(scores := run.scores((task, options))) > 1:
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
            reason = str(row["error"] or row["note"]) or f"{row['found']} instead of {row['gold']}"
            yield clipped(f"  {names[key_of(row)]}: {printable(reason)}", 80)
            yield f"    ...{clipped_front(printable(str(row['answer']).strip()), TAIL).removeprefix('...')}"
        if missed:
            yield "Step into the first:"
            yield f"  dlstep report {run.folder} --show {names[key_of(missed[0][0])]}"
        yield from ("", "Slowest requests")
        for row, beside in sorted(pairs, key=lambda pair: -pair[1]["seconds"])[:most]:
            cost = f"{beside['seconds']:.2f} s, {counted(beside['forwards'], 'forward pass')}, {len(row['tokens'])} tokens"
            yield clipped(f"  {names[key_of(row)]}: {cost}, ended by {row['finish']}", 80)


def row_named(run: EvalRun, name: str) -> Mapping[str, Any]:
    """Return the answer with this name. Raises ValueError if there is none."""
    keys = {name: key for key, name in names_of(run).items()}
    if name not in keys:
        raise ValueError(f"--show {short(name)} is not an answer of {run.folder}: names are like {next(iter(keys), 'none')}")
    return run.rows[keys[name]]


def shown(run: EvalRun, names: Sequence[str]) -> list[Trace]:
    """Decode answers again, each alone, save their traces in the run's folder, and return them.

    Raises ValueError if the model, its options or the problems differ from those of the run, if
    these options were Python values, or if another process writes to its folder, and DlstepError if
    an answer differs.
    """
    check_free(run.folder)
    rows = [row_named(run, name) for name in names]
    given_options: Any = run.settings.get("told")
    if not is_a(given_options, {"eval": dict, "engine": dict}):
        raise ValueError(f"{run.folder} was not written by the command `dlstep eval`, so --show cannot read its options")
    options = options_from(given_options["eval"])
    documents = read_documents(options)
    llm = LLM.from_config(engine_config(given_options["engine"]))
    key = key_of_run(options, documents, about(llm.engine))
    for part in ("engine", "problems"):
        if key[part] != run.settings["key"][part]:
            raise ValueError(f"{part} of {run.folder} was {short(run.settings['key'][part])} and is now {short(key[part])}")
    items = {item.key: item for item in items_of(options, documents)}
    traces: list[Trace] = []
    with closing(RunLock(run.folder)):
        for name, row in zip(names, rows, strict=True):
            item = items[key_of(row)]
            session = llm.session()
            session.submit(item.ids(llm.engine), replace(item.params, seed=row["seed"]))
            session.run()
            tokens = list(session.output(0).token_ids)
            if tokens != row["tokens"]:
                raise DlstepError(f"{name} decoded alone gives {short(tokens)}, but {short(row['tokens'])} in the run")
            path = trace_path(run.folder, name)
            path.parent.mkdir(exist_ok=True)
            session.trace.save(path)
            traces.append(session.trace)
            session.close()
    return traces


def untraced(run: EvalRun, most: int) -> list[str]:
    """Return the names of those of the first `most` wrong answers that have no trace yet."""
    names = names_of(run)
    missed = wrong([pair for pairs in run.groups.values() for pair in pairs])[:most]
    return [name for row, _ in missed if not trace_path(run.folder, name := names[key_of(row)]).is_file()]
