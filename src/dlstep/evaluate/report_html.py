"""The report of a run as one HTML page."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core import Trace
from ..text.constraints import recompiled
from ..text.words import counted
from ..views.frames import recording
from ..views.page import page_around, report_page
from .checkpoint import EvalRun
from .report import charts_of, names_of, trace_path
from .table import TableLine, pieces

MOST_RECORDINGS = 50  # answers whose steps are in a page
# Fields of the list of answers, from an answer's two lines.
ROW_FIELDS = ("task", "document", "answer", "steps", "finish", "error", "gold", "found", "note", "score")
BESIDE_FIELDS = ("forwards", "seconds", "probabilities")
HEADS = {
    "engine": "Model and decoding",
    "eval": "Problems and sampling",
    "problems": "Problems, by task",
    "versions": "Versions of dlstep and of its sources",
    "environment": "Environment",
}


def report_html(run: EvalRun, lines: Sequence[TableLine]) -> str:
    """Return the page: table, charts of steps, all answers, and the settings of the run."""
    data, engine = data_of(run), run.settings["key"]["engine"]
    answers, groups = data["answers"], run.groups
    state = "" if len(run.rows) == run.expected else f" of {run.expected}: the run is not complete"
    strategy = str(engine.get("strategy")).partition("(")[0]
    titles = [f"{task}, {label_of(options)}" if len(groups) > 1 else task for task, options in groups]
    return report_page(
        "report.html", entry="report.js", data=data, steps=True, name=run.folder.resolve().name,
        summary=f"{engine.get('model')}, {strategy}. {counted(len(run.rows), 'answer')}{state}.",
        tables=tables(lines), groups=dict(zip(titles, map(charts_of, groups.values()), strict=True)),
        tasks=dict.fromkeys(answer["task"] for answer in answers), sets=data["sets"],
        finishes=dict.fromkeys(answer["finish"] for answer in answers),
        some_wrong=any(answer["score"] < 1 for answer in answers), settings=settings_of(run),
    )  # fmt: skip


def label_of(options: str) -> str:
    """Return a set of options, given as JSON, in plain words."""
    return ", ".join(f"{name} {value}" for name, value in json.loads(options).items()) or "those of the run"


def tables(lines: Sequence[TableLine]) -> Iterator[dict[str, list[Any]]]:
    """Yield headings and rows of each part of the table, without empty columns.

    The first cells of a row are labels: the task and the set of options, if they differ.
    """
    sets = len({line.options for line in lines}) > 1
    tasks = not sets or len({line.task for line in lines}) > 1
    labels = [[*[line.task] * tasks, *[label_of(line.options)] * sets] for line in lines]
    for columns, rows in pieces(lines):
        kept = [place for place in range(len(columns)) if any(row[place] not in ("", "-") for row in rows)]
        if kept:
            yield {
                "labels": [*["task"] * tasks, *["options"] * sets],
                "heads": [columns[place].label for place in kept],
                "rows": [[*label, *(row[place] for place in kept)] for label, row in zip(labels, rows, strict=True)],
            }


def settings_of(run: EvalRun) -> dict[str, Mapping[str, Any]]:
    """Return the settings by title: each part of the key of the run, and each machine."""
    parts: dict[str, Mapping[str, Any]] = {HEADS[part]: run.settings["key"].get(part, {}) for part in HEADS}
    problems = run.settings["key"]["problems"].items()
    parts[HEADS["problems"]] = {task: f"{facts['count']}, digest {facts['digest']}" for task, facts in problems}
    return parts | {f"Machine {number}": machine for number, machine in enumerate(run.settings.get("machines", []), 1)}


def data_of(run: EvalRun) -> dict[str, Any]:
    """Return the data of the list of answers, and the recorded steps of some."""
    prompts: dict[str, int] = {}
    sets = {options: number for number, options in enumerate(dict.fromkeys(group[1] for group in run.groups))}
    answers: list[dict[str, Any]] = []
    for key, name in names_of(run).items():
        row, beside = run.rows[key], run.beside[key]
        prompt = row["prompt"]
        if not isinstance(prompt, str):
            prompt = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)
        answers.append({
            "name": name, "set": sets[key[2]], "prompt": prompts.setdefault(prompt, len(prompts)),
            **{field: row[field] for field in ROW_FIELDS}, **{field: beside[field] for field in BESIDE_FIELDS},
            "tokens": len(row["tokens"]), "decided": beside["decided_at"],
            "command": shlex.join(["dlstep", "report", str(run.folder), "--show", name]),
        })  # fmt: skip
    tables = {"answers": answers, "prompts": [*prompts], "sets": [*map(label_of, sets)]}
    return tables | {"recordings": recordings(run), "live": page_around()}


def recordings(run: EvalRun) -> dict[str, Any]:
    """Return the steps of the answers with traces by name, wrong answers first."""
    model = str(run.settings["key"]["engine"].get("model"))
    steps: dict[str, Any] = {}
    for key, name in sorted(names_of(run).items(), key=lambda pair: run.rows[pair[0]]["score"]):
        path = trace_path(run.folder, name)
        if len(steps) < MOST_RECORDINGS and path.is_file():
            trace = recompiled(Trace.load(path))
            sequence = trace.state.find(0)
            # A trace of another answer, decoded with other code or options, is not shown.
            if sequence is not None and list(sequence.answer) == run.rows[key]["tokens"]:
                steps[name] = recording(trace, model)
    return steps
