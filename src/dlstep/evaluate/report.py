"""Reports of runs and comparisons: as text, as one HTML page, and the trace of an answer that is decoded again alone."""

import json
import platform
import shlex
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..batch.facts import facts_of
from ..core import DlstepError, SamplingParams, Trace
from ..core.checks import short
from ..engine.config import engine_config
from ..engine.json_lines import Line, RunLock, check_free
from ..llm import LLM
from ..text.prompts import encode
from ..text.words import clipped, clipped_front, counted, printable
from ..views.page import report_page
from .checkpoint import EvalRun
from .comparing import ComparisonRow, comparison_parts
from .items import Key
from .metrics import Pair, ratio
from .table import TableLine, run_parts

PARTS = 10  # parts of an answer
MOST_TOKENS = 8  # unmasked in one step; larger numbers are counted together
MOST_WRONG = 5  # answers in a text
TAIL = 60  # characters of a wrong answer


class Chart(NamedTuple):
    """A bar chart of shares."""

    title: str
    words: str
    labels: list[str]
    shares: Sequence[float]


def charts_of(pairs: Sequence[Pair]) -> list[Chart]:
    """Return charts of some answers, each bar a ratio of sums. An answer is divided into `PARTS` parts.

    First, the share of steps whose first masked position was in each part; the remaining steps came
    after the last token was unmasked. Second, the share of steps that unmasked 0, 1, ... and at least
    `MOST_TOKENS` tokens of the answer.
    """
    spent, per_step = [0] * PARTS, [0] * (MOST_TOKENS + 1)
    for row, beside in pairs:
        unmasked_at, steps = beside["decided_at"], row["steps"]
        # The first masked position is at `offset` or before until all tokens up to it are there.
        known = 0
        for offset, settled in enumerate(accumulate(unmasked_at, max)):
            spent[offset * PARTS // len(unmasked_at)] += settled - known
            known = settled
        counts = Counter(unmasked_at)
        for tokens in counts.values():
            per_step[min(tokens, MOST_TOKENS)] += 1
        per_step[0] += steps - len(counts.keys() - {0})
    total = sum(row["steps"] for row, _ in pairs)
    parts = [str(number + 1) for number in range(PARTS)]
    return [
        Chart(
            "Steps by place", "share of steps whose first masked position was in each tenth", [*parts, "after"],
            [ratio(steps, total) for steps in (*spent, max(0, total - sum(spent)))],
        ),
        Chart(
            "Tokens of a step", "share of steps that unmasked so many tokens",
            [*map(str, range(MOST_TOKENS)), f"{MOST_TOKENS}+"], [ratio(steps, total) for steps in per_step],
        ),
    ]  # fmt: skip


def names_of(run: EvalRun) -> dict[Key, str]:
    """Return the name of each answer for `--show`, such as `gsm8k/7` or `gsm8k/7/2`."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(options for _, _, options in run.rows), 1)}
    several = len(numbers) > 1
    return {key: f"{key[0]}/{key[1]}/{numbers[key[2]]}" if several else f"{key[0]}/{key[1]}" for key in run.rows}


def wrong(run: EvalRun) -> dict[str, Line]:
    """Return the answers with a score below 1 by name, the lowest score first, then in order."""
    names = names_of(run)
    missed = {names[key]: row for key, row in run.rows.items() if row["score"] < 1}
    return dict(sorted(missed.items(), key=lambda each: each[1]["score"]))


def label_of(options: str) -> str:
    """Return a set of options, given as JSON, in plain words."""
    return ", ".join(f"{name} {value}" for name, value in json.loads(options).items()) or "those of the run"


def report_lines(run: EvalRun) -> Iterator[str]:
    """Yield the wrong answers, at most 80 characters per line."""
    missed = wrong(run)
    yield f"Wrong answers: {len(missed)} of {len(run.rows)}"
    for name, row in [*missed.items()][:MOST_WRONG]:
        reason = str(row["error"] or row["note"]) or f"{row['found']} instead of {row['gold']}"
        yield clipped(f"  {name}: {printable(reason)}", 80)
        yield f"    ...{clipped_front(printable(str(row['answer']).strip()), TAIL).removeprefix('...')}"
    if missed:
        yield "Step into the first:"
        yield f"  dlstep report {run.folder} --show {next(iter(missed))}"


def shown(run: EvalRun, name: str) -> tuple[Line, Trace, Path]:
    """Decode an answer again, alone, and save the trace in the run's folder. Return the answer, the trace and its path.

    Raises ValueError for an unknown name, if the model or its options differ from those of the run, if
    these options were Python values, or if another process writes to the folder, and DlstepError if
    the answer differs.
    """
    check_free(run.folder)
    names = {name: key for key, name in names_of(run).items()}
    if name not in names:
        raise ValueError(f"--show {short(name)} is not an answer of {run.folder}: names are like {next(iter(names))}")
    row, given_options = run.rows[names[name]], run.settings["told"]
    if "engine" not in given_options:
        raise ValueError(f"{run.folder} was not written by the command `dlstep eval`, so --show cannot read its options")
    llm = LLM.from_config(engine_config(given_options["engine"]))
    stored, facts = run.settings["key"]["engine"], facts_of(llm.engine)
    if facts != stored:
        raise ValueError(f"engine of {run.folder} was {short(stored)} and is now {short(facts)}")
    with closing(RunLock(run.folder)), closing(llm.session()) as session:
        prompt = encode(llm.engine, row["prompt"], special=row["special"], ends=row["special"])
        session.submit(prompt, SamplingParams(**row["params"] | {"seed": row["seed"], "strategy_options": row["options"]}))
        session.run()
        tokens = list(session.output(0).token_ids)
        if tokens != row["tokens"]:
            raise DlstepError(f"{name} decoded alone gives {short(tokens)}, but {short(row['tokens'])} in the run")
        path = run.folder / "traces" / f"{name.replace('/', '-')}.jsonl"
        path.parent.mkdir(exist_ok=True)
        session.trace.save(path)
        return row, session.trace, path


def run_page(run: EvalRun, lines: Sequence[TableLine]) -> str:
    """Return the page of a run: table, charts of steps, all answers, and the settings of the run."""
    key, data = run.settings["key"], data_of(run)
    state = "" if len(run.rows) == run.expected else f" of {run.expected}: the run is not complete"
    charts = {f"{task}, {label_of(options)}": charts_of(pairs) for (task, options), pairs in run.groups.items()}
    return report_page(
        data=data, title=f"Evaluation: {run.folder.resolve().name}",
        notes=[f"{key['engine'].get('model')}. {counted(len(run.rows), 'answer')}{state}."], picture="",
        parts=run_parts(lines), charts=charts, answers=run.rows.values(), settings=key, sets=data["sets"],
    )  # fmt: skip


def comparison_page(
    rows: Sequence[ComparisonRow], *, command: str, left_out: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    """Return the page of a comparison; `command` is the command line that made it."""
    from .pictures import svg  # needs matplotlib

    picture = f"data:image/svg+xml;base64,{b64encode(svg(rows).encode()).decode()}"
    versions = {"dlstep": __version__, "torch": version("torch"), "python": platform.python_version()}
    settings = {"command": {"command": command}, "left out": dict(enumerate(left_out, 1)), "versions": versions}
    return report_page(
        title="Comparison", notes=notes, picture=picture, parts=comparison_parts(rows), charts={},
        answers=(), settings=settings, sets=(),
    )  # fmt: skip


def data_of(run: EvalRun) -> dict[str, Any]:
    """Return the data of the list of answers."""
    prompts: dict[str, int] = {}
    sets = {options: number for number, options in enumerate(dict.fromkeys(group[1] for group in run.groups))}
    answers: list[Mapping[str, Any]] = []
    for key, name in names_of(run).items():
        row, beside = run.rows[key], run.beside[key]
        answers.append({
            **row, **beside, "name": name, "set": sets[key[2]], "prompt": prompts.setdefault(row["prompt"], len(prompts)),
            "tokens": len(row["tokens"]), "decided": beside["decided_at"],
            "command": shlex.join(["dlstep", "report", str(run.folder), "--show", name]),
        })  # fmt: skip
    return {"answers": answers, "prompts": [*prompts], "sets": [*map(label_of, sets)]}
