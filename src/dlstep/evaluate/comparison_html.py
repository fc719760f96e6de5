"""A comparison as a self-contained HTML page: tables, pictures of the frontiers, and the command and versions."""

import platform
from base64 import b64encode
from collections.abc import Iterator, Sequence as Items

from .. import __version__
from ..text.words import counted
from ..views.page import report_page
from ..views.tables import cell, head_html, scrolled, text
from .comparing import Curve, Row, curves_of, label_of, value_of
from .pictures import svg
from .table import interval, with_error

BEST = ' class="on"'
ROWS_HEAD = ("", "right answers, %", "tokens per forward", "forwards an answer", "seconds", "against the best, %", "as right")
CURVES_HEAD = ("strategy", "rule", "model", "AUP", "fastest as right as the best", "right answers, %", "tokens per forward")
READING = """
<p>Each line of a table is a set of options that answered all problems. Tokens per forward is a ratio of sums: all tokens,
divided by all forwards of the answers. ± is a standard error over problems, and brackets enclose 95 % intervals. Bold lines
are on the frontier: no other line of the task is better in accuracy or speed and at least as good in the other. <em>Against
the best</em> compares with the most accurate line of the task on the same problems, by Hsu's multiple comparison with the
best. A line is <em>as right</em> if its interval reaches 0, so that these problems do not distinguish it from the best. A
line that is truly the best is called worse with a probability of at most 5 %, for any number of lines.</p>
<h2>AUP</h2>
<p>The accuracy under parallelism of a strategy with a rule. Its lines are sorted by tokens per forward r, ascending; y is their
accuracy in percent:</p>
<pre>AUP = r_1 y_1 + sum over i of (r_i - r_(i-1)) (y_i W(y_i) + y_(i-1) W(y_(i-1))) / 2
W(y) = min(exp(-3 (1 - y / y_max)), 1)</pre>
<p>Only lines with y of at least y_1 - 5 count, and of lines with equal r only the most accurate one. y_max is the accuracy of
the best line of the task: figures with different y_max, or over different values of options, are not comparable. Source:
d3LLM, 2026, arXiv 2601.07568, and its published code.</p>
""".strip()


def comparison_html(rows: Items[Row], *, command: str, left_out: Items[str] = (), notes: Items[str] = ()) -> str:
    """Return the page of a comparison; `command` is the command line that made it."""
    parts = ["<h1>Comparison</h1>", *(f"<p>{text(note)}</p>" for note in notes), picture(rows)]
    for task, curves in curves_of(rows).items():
        parts += [
            f"<h2>{text(task)}, {counted(curves[0].rows[0].problems, 'problem')}</h2>",
            *curves_html(curves),
            *rows_html(curves),
        ]
    parts += ["<h2>How to read this</h2>", READING]
    if left_out:
        parts += ["<h2>Left out</h2>", f"<ul>{''.join(f'<li>{text(why)}</li>' for why in left_out)}</ul>"]
    parts += ["<h2>Made by</h2>", f"<pre>{text(command)}</pre>", f"<p>{text(versions())}</p>"]
    return report_page("dlstep compare", "\n".join(parts))


def picture(rows: Items[Row]) -> str:
    """Return the frontiers as a picture element, drawn for light and for dark pages."""
    light, dark = (f"data:image/svg+xml;base64,{b64encode(svg(rows, dark=each).encode()).decode()}" for each in (False, True))
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="Right answers against tokens per forward, a frame for each task"></picture>'
    )


def curves_html(curves: Items[Curve]) -> Iterator[str]:
    """Yield a table with a line for each entry, the highest AUP first."""
    yield f"<p>y_max of the AUP is {100 * curves[0].rows[0].aup_best:.1f} %.</p>"
    lines = [head_html(CURVES_HEAD, CURVES_HEAD[:3] + CURVES_HEAD[4:5])]
    for curve in sorted(curves, key=lambda curve: -curve.rows[0].aup):
        first, fastest = curve.rows[0], curve.fastest
        words = [first.strategy, first.rule or "-", first.model]
        found = ["none", "-", "-"] if fastest is None else [named_value(fastest), *figures(fastest)[:2]]
        cells = [*(cell(word, words=True) for word in words), cell(f"{first.aup:.1f}"), cell(found[0], words=True)]
        lines.append(f"<tr>{''.join([*cells, *map(cell, found[1:])])}</tr>")
    yield scrolled("AUP of each strategy with a rule", *lines)


def rows_html(curves: Items[Curve]) -> Iterator[str]:
    """Yield a table with a line for each set of options, entry by entry."""
    lines = [head_html(ROWS_HEAD)]
    for curve in curves:
        title = f"{label_of(curve.rows[0])}: {', '.join(curve.options) or 'nothing is varied'}"
        lines.append(f'<tr class="entry"><td colspan="{len(ROWS_HEAD)}">{text(title)}</td></tr>')
        for row in curve.rows:
            told = "yes" if row.as_right else "no"
            against = interval(row.to_best, row.to_best_low, row.to_best_high, 100, 1, "+")
            cells = [value_of(row) or "as it is", *figures(row), f"{row.seconds:.1f}", against, told]
            lines.append(f"<tr{BEST * row.on_frontier}>{''.join(map(cell, cells))}</tr>")
    yield scrolled("Sets of options", *lines)


def figures(row: Row) -> list[str]:
    """Return accuracy, speed and cost with their intervals or standard errors."""
    return [
        interval(row.accuracy, row.accuracy_low, row.accuracy_high, 100, 1),
        with_error(row.tokens_per_forward, row.tokens_per_forward_error, 2),
        with_error(row.forwards_per_answer, row.forwards_per_answer_error, 1),
    ]


def named_value(row: Row) -> str:
    """Return the options of a row with their names."""
    return f"{', '.join(row.options)} {value_of(row)}".strip() or "as it is"


def versions() -> str:
    """Return the versions that figures may depend on."""
    from importlib.metadata import version

    return f"dlstep {__version__}, torch {version('torch')}, Python {platform.python_version()}"
