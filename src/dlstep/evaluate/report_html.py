"""The report of a run as one HTML page: tables, where steps were spent, and a list of all answers with filters."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence as Items
from typing import Any

from ..core import Trace
from ..text.words import counted
from ..views.frames import recording
from ..views.page import page_around, report_page
from .checkpoint import Run
from .report import charts_of, names_of, trace_path
from .table import Line, pieces

MOST_RECORDINGS = 50  # answers whose steps are in a page
HEADS = {
    "engine": "Model and decoding",
    "eval": "Problems and sampling",
    "problems": "Problems, by task",
    "versions": "Versions of dlstep and of its sources",
    "environment": "Environment",
}


def report_html(run: Run, lines: Items[Line]) -> str:
    """Return the page: the table, where steps were spent, all answers, and the settings of the run."""
    data, engine = data_of(run), run.asked["key"]["engine"]
    answers, groups = data["answers"], run.groups
    state = "" if len(run.rows) == run.expected else f" of {run.expected}: the run is not complete"
    strategy = str(engine.get("strategy")).partition("(")[0]
    titles = [f"{task}, {label_of(options)}" if len(groups) > 1 else task for task, options in groups]
    return report_page(
        "report.html",
        entry="report.js",
        data=data,
        steps=True,
        name=run.folder.resolve().name,
        summary=f"{engine.get('model')}, {strategy}. {counted(len(run.rows), 'answer')}{state}.",
        tables=tables(lines),
        groups=dict(zip(titles, map(charts_of, groups.values()), strict=True)),
        tasks=dict.fromkeys(answer["task"] for answer in answers),
        sets=data["sets"],
        finishes=dict.fromkeys(answer["finish"] for answer in answers),
        some_wrong=any(answer["score"] < 1 for answer in answers),
        settings=settings_of(run),
    )


def label_of(options: str) -> str:
    """Return a set of options, given as JSON, in plain words."""
    return ", ".join(f"{name} {value}" for name, value in json.loads(options).items()) or "those of the run"


def tables(lines: Items[Line]) -> Iterator[dict[str, list[Any]]]:
    """Yield headings and rows of each part of the table; a column without any figure is left out.

    The first cells of a row are labels: the task and the set of options, as far as the lines differ in them.
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


def settings_of(run: Run) -> dict[str, Mapping[str, Any]]:
    """Return the settings by title: each part of the key of the run, and each machine."""
    found: dict[str, Mapping[str, Any]] = {HEADS[part]: run.asked["key"].get(part, {}) for part in HEADS}
    problems = run.asked["key"]["problems"].items()
    found[HEADS["problems"]] = {task: f"{each['count']}, digest {each['digest']}" for task, each in problems}
    return found | {f"Machine {number}": machine for number, machine in enumerate(run.asked.get("machines", []), 1)}


def data_of(run: Run) -> dict[str, Any]:
    """Return the data of the list of answers: answers, their prompts, their sets of options, and the steps of some."""
    prompts: dict[str, int] = {}
    sets = {options: number for number, options in enumerate(dict.fromkeys(group[1] for group in run.groups))}
    answers = [
        {
            "name": name,
            "task": row["task"],
            "document": row["document"],
            "set": sets[key[2]],
            "prompt": prompts.setdefault(prompt_text(row["prompt"]), len(prompts)),
            **{field: row[field] for field in ("answer", "steps", "finish", "error", "gold", "found", "note", "score")},
            "tokens": len(row["tokens"]),
            "forwards": beside["forwards"],
            "seconds": beside["seconds"],
            "decided": beside["decided_at"],
            "probabilities": beside["probabilities"],
            "command": shlex.join(["dlstep", "report", str(run.folder), "--show", name]),
        }
        for key, name in names_of(run).items()
        for row, beside in [(run.rows[key], run.beside[key])]
    ]
    return {
        "answers": answers,
        "prompts": [*prompts],
        "sets": [*map(label_of, sets)],
        "recordings": recordings(run),
        "live": page_around(),
    }


def recordings(run: Run) -> dict[str, Any]:
    """Return the steps of the answers that have traces in the folder, by name, wrong answers first."""
    model = str(run.asked["key"]["engine"].get("model"))
    found: dict[str, Any] = {}
    for key, name in sorted(names_of(run).items(), key=lambda pair: run.rows[pair[0]]["score"]):
        path = trace_path(run.folder, name)
        if len(found) < MOST_RECORDINGS and path.is_file():
            trace = Trace.load(path)
            # The trace may be of another answer, decoded with other code or options: it is not shown then.
            sequence = trace.state.find(0)
            if sequence is not None and list(sequence.answer) == run.rows[key]["tokens"]:
                found[name] = recording(trace, model)
    return found


def prompt_text(prompt: str | Items[Mapping[str, str]]) -> str:
    """Return a prompt as text; a conversation as its turns."""
    return prompt if isinstance(prompt, str) else "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)
