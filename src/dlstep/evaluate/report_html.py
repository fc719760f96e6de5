"""The report of a run as one HTML page: tables, where steps were spent, and a list of all answers with filters."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence as Items
from typing import Any

from ..core import Trace
from ..core.words import counted
from ..views.frames import recording
from ..views.page import page_around, report_page, source
from ..views.tables import cell, chart, head_html, scrolled, text
from .report import MOST_TOKENS, PARTS, names_of, trace_path, where
from .runs import Run
from .table import Line, pieces

MOST_RECORDINGS = 50  # answers whose steps are in a page
LABELS = {
    "right, %": "right answers, %",
    "tok/fwd": "tokens per forward pass",
    "tok/step": "tokens per sampling forward pass",
    "fwd/answer": "forward passes per answer",
    "forwards": "forward passes",
    "computed": "rows computed",
    "decided": "tokens decided",
    "wasted": "rows computed in vain",
    "tok/s": "tokens per second, end to end",
    "in decode": "tokens per second, while decoding",
    "batch": "requests per forward pass",
    "pad, %": "padding rows, %",
    "equal, %": "equal answers, %",
    "right, % gained": "right answers gained, %",
    "tok/fwd gained": "tokens per forward pass gained",
}
HEADS = {
    "engine": "Model and decoding",
    "eval": "Problems and sampling",
    "problems": "Problems, by task",
    "versions": "Versions of dlstep and of its sources",
    "environment": "Environment",
}


def report_html(run: Run, lines: Items[Line]) -> str:
    """Return the page: the table, where steps were spent, all answers, and the settings of the run."""
    data = data_of(run)
    name, engine = run.folder.resolve().name, run.asked["key"]["engine"]
    state = "" if len(run.rows) == run.expected else f" of {run.expected}: the run is not complete"
    strategy = str(engine.get("strategy")).partition("(")[0]
    head = f"{engine.get('model')}, {strategy}. {counted(len(run.rows), 'answer')}{state}."
    parts = [f"<h1>Evaluation: {text(name)}</h1>", f'<p class="soft">{text(head)}</p>', *table_html(lines)]
    parts += ["<h2>Where steps were spent</h2>", *charts_html(run)]
    wrong = any(answer["score"] < 1 for answer in data["answers"])
    tasks = dict.fromkeys(answer["task"] for answer in data["answers"])
    finishes = dict.fromkeys(answer["finish"] for answer in data["answers"])
    filters = {
        "tasks": "".join(option(task) for task in tasks),
        "sets": "".join(option(label, str(number)) for number, label in enumerate(data["sets"])),
        "finishes": "".join(option(finish) for finish in finishes),
        "wrong": " selected" * wrong,
    }
    parts += ["<h2>Answers</h2>", source("report.html").format(**filters), "<h2>Settings</h2>", *settings_html(run)]
    return report_page(text(f"dlstep eval: {name}"), "\n".join(parts), entry="report.js", data=data, steps=True)


def option(label: str, value: str | None = None) -> str:
    """Return one choice of a filter."""
    return f'<option value="{text(label if value is None else value)}">{text(label)}</option>'


def label_of(options: Mapping[str, Any]) -> str:
    """Return a set of options in plain words."""
    return ", ".join(f"{name} {value}" for name, value in options.items()) or "those of the run"


def table_html(lines: Items[Line]) -> Iterator[str]:
    """Yield the parts of the table; a column without any figure is left out."""
    sets = len({line.options for line in lines}) > 1
    tasks = not sets or len({line.task for line in lines}) > 1
    for heads, rows in pieces(lines):
        kept = [place for place in range(len(heads)) if any(row[place] not in ("", "-") for row in rows)]
        if not kept:
            continue
        names = [LABELS.get(heads[place], heads[place]) for place in kept]
        body = [head_html([*(["task"] * tasks), *(["options"] * sets), *names], ("task", "options"))]
        for line, row in zip(lines, rows, strict=True):
            labels = [*([line.task] * tasks), *([label_of(json.loads(line.options))] * sets)]
            cells = [*(cell(label, words=True) for label in labels), *(cell(row[place]) for place in kept)]
            body.append(f"<tr>{''.join(cells)}</tr>")
        yield scrolled(", ".join(names), *body)


def charts_html(run: Run) -> Iterator[str]:
    """Yield the charts of each task and set of options."""
    groups = run.groups
    for group, pairs in groups.items():
        found = where(pairs)
        tenths = [str(number + 1) for number in range(PARTS)]
        most = max((number + 1 for number, share in enumerate(found.taken) if share), default=1)
        counts = [*map(str, range(MOST_TOKENS)), f"{MOST_TOKENS} and more"][:most]
        charts = (
            chart("Order of filling", "how far the steps were when each tenth of an answer was decided", tenths, found.decided),
            chart(
                "Steps by place",
                "share of steps whose first undecided token lay in each tenth, or behind the answer",
                [*tenths, "behind"],
                (*found.spent, max(0.0, 1 - sum(found.spent))),
            ),
            chart("Tokens of a step", "share of steps that decided so many tokens", counts, found.taken[:most]),
        )
        title = f"{group[0]}, {label_of(json.loads(group[1]))}" if len(groups) > 1 else group[0]
        yield f"<details{' open' * (len(groups) == 1)}><summary>{text(title)}</summary>"
        yield f'<div class="charts">{"".join(charts)}</div></details>'


def settings_html(run: Run) -> Iterator[str]:
    """Yield a table for each part of the key of the run and for each machine; empty values are left out."""
    found: dict[str, Mapping[str, Any]] = {HEADS[part]: run.asked["key"].get(part, {}) for part in HEADS}
    problems = run.asked["key"]["problems"].items()
    found[HEADS["problems"]] = {task: f"{each['count']}, digest {each['digest']}" for task, each in problems}
    found |= {f"Machine {number}": machine for number, machine in enumerate(run.asked.get("machines", []), 1)}
    for title, told in found.items():
        rows = [
            f'<tr><th scope="row">{text(name.replace("_", " "))}</th><td class="words long">{text(value)}</td></tr>'
            for name, value in told.items()
            if value not in (None, "", [], ())
        ]
        yield f"<details><summary>{text(title)}</summary>{scrolled(title, *rows)}</details>"


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
            "prompt": prompts.setdefault(prompt_text(row), len(prompts)),
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
        "sets": [label_of(json.loads(options)) for options in sets],
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


def prompt_text(row: Mapping[str, Any]) -> str:
    """Return the prompt as text; a conversation as its turns."""
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)
