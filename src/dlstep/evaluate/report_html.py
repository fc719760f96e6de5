"""The report of a run as one HTML page: no scripts, nothing from elsewhere, and every text of a model escaped."""

from collections.abc import Iterable, Mapping, Sequence as Items
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from ..core import Trace
from ..views import filling_svg
from .metrics import Pair
from .report import MOST_TOKENS, PARTS, name_of, reason, scores_line, slowest, title, where, wrong
from .runs import Run
from .table import Line

TRACES = "traces"
STYLE = """
body{font:14px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#111;background:#fff}
table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}
td,th{padding:2px 8px;border-bottom:1px solid #ddd;text-align:right;font-variant-numeric:tabular-nums}
td:first-child,th:first-child{text-align:left}
.bar{display:inline-block;height:.8em;background:#1f6feb}
.cell{display:inline-block;min-width:1.6em;padding:0 2px;margin:1px;text-align:center;font:11px ui-monospace,monospace}
pre{white-space:pre-wrap;background:#f4f4f4;padding:6px;margin:4px 0}summary{cursor:pointer}
""".strip()


def report_html(run: Run, lines: Items[Line], most: int) -> str:
    """The page: the table, then for each task and set of options what happened where."""
    engine = run.asked["key"]["engine"]
    head = f"{engine.get('model')}, {engine.get('strategy')}, {len(run.rows)} of {run.expected} answers"
    parts = [f"<h1>{escape(str(run.folder.resolve().name))}</h1><p>{escape(head)}</p>", table_html(lines)]
    for group, pairs in run.groups.items():
        found = where(pairs)
        tenths = [str(number + 1) for number in range(PARTS)]
        parts.append(f"<h2>{escape(title(group))}</h2><p>{escape(scores_line(run, group))}</p>")
        parts.append("<h3>Order of filling</h3><p>How far the steps were when each tenth of an answer was decided.</p>")
        parts.append(bars_html(tenths, found.decided))
        parts.append("<h3>Where steps were spent</h3><p>Steps whose first undecided token lay in each tenth.</p>")
        parts.append(bars_html([*tenths, "behind"], (*found.spent, max(0.0, 1 - sum(found.spent)))))
        parts.append("<h3>Tokens that a step decided</h3>")
        labels = [str(number) for number in range(MOST_TOKENS)]
        parts.append(bars_html([*labels, f"{MOST_TOKENS} and more"], found.taken))
        missed = wrong(pairs)
        parts.append(f"<h3>Wrong answers: {len(missed)} of {len(pairs)}</h3>")
        parts += [answer_html(run, pair, reason(pair[0])) for pair in missed[:most]]
        parts.append("<h3>Slowest requests</h3>")
        parts += [answer_html(run, pair, slow_words(pair)) for pair in slowest(pairs)[:most]]
    body = "\n".join(parts)
    top = f'<meta charset="utf-8"><title>dlstep eval</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en">{top}\n{body}\n</html>\n'


def table_html(lines: Items[Line]) -> str:
    """The table, a row for each of its columns, because it has many."""
    rows = [asdict(line) for line in lines]
    body = [f"<tr><td>{escape(name)}</td>{''.join(cells(row[name] for row in rows))}</tr>" for name in asdict(lines[0])]
    return f"<table>{''.join(body)}</table>"


def cells(values: Iterable[object]) -> list[str]:
    """Values as cells of a table."""
    texts = ("" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value) for value in values)
    return [f"<td>{escape(text)}</td>" for text in texts]


def bars_html(labels: Items[str], shares: Items[float]) -> str:
    """A bar for each share."""
    rows = [
        f'<tr><td>{escape(label)}</td><td>{100 * share:.1f} %</td><td style="text-align:left">'
        f'<span class="bar" style="width:{20 * share:.2f}em"></span></td></tr>'
        for label, share in zip(labels, shares, strict=True)
    ]
    return f"<table>{''.join(rows)}</table>"


def slow_words(pair: Pair) -> str:
    """The costs of a slow answer."""
    row, beside = pair
    return f"{beside['seconds']:.2f} s, {beside['forwards']} forwards, {len(row['tokens'])} tokens"


def answer_html(run: Run, pair: Pair, words: str) -> str:
    """An answer to be opened by a click: prompt, text, the step that decided each token, and its trace if there is one."""
    row, beside = pair
    name = name_of(run, row)
    path = trace_path(run.folder, name)
    if path.is_file():
        picture = filling_svg([(name, Trace.load(path))])
    else:
        picture = f"<p>Its trace: <code>dlstep report {escape(str(run.folder))} --show {escape(name)}</code></p>"
    return (
        f"<details><summary>{escape(name)}: {escape(words)}</summary><pre>{escape(prompt_text(row))}</pre>"
        f"<pre>{escape(str(row['answer']))}</pre><p>The step that decided each token:</p>"
        f"<div>{strip_html(row, beside)}</div>{picture}</details>"
    )


def prompt_text(row: Mapping[str, Any]) -> str:
    """The prompt as text; of a conversation its turns."""
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)


def strip_html(row: Mapping[str, Any], beside: Mapping[str, Any]) -> str:
    """A box for each token: its number is the step that decided it, its colour goes from early blue to late red."""
    boxes: list[str] = []
    for token, step, probability in zip(row["tokens"], beside["decided_at"], beside["probabilities"], strict=True):
        hue = round(220 * (1 - step / max(1, row["steps"])))
        hint = f"token {token}, step {step}, probability {probability:.3f}"
        boxes.append(f'<span class="cell" style="background:hsl({hue},80%,80%)" title="{hint}">{step}</span>')
    return "".join(boxes)


def trace_path(folder: Path, name: str) -> Path:
    """Where the trace of an answer lies."""
    return folder / TRACES / f"{name.replace('/', '-')}.jsonl"
