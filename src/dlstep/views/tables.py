"""Tables and texts of reports as HTML, in which every text of users or models is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from ..text.words import printable

WORDS = ' class="words"'


def text(value: object) -> str:
    """Return a value as text on one line, with markup escaped and without characters that hide or reorder text."""
    return escape(printable(str(value)))


def head_html(heads: Iterable[str], words: Iterable[str] = ()) -> str:
    """Return the headings of a table; those in `words` are left-aligned. An empty heading becomes an empty cell."""
    left = tuple(words)
    cells = [f'<th scope="col"{WORDS * (head in left)}>{text(head)}</th>' if head else "<td></td>" for head in heads]
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def cell(value: object, *, words: bool = False) -> str:
    """Return a cell of a table."""
    return f"<td{WORDS * words}>{text(value)}</td>"


def scrolled(label: str, *rows: str) -> str:
    """Return a table with a label; if the table is wider than the page, it scrolls separately, also with the keyboard."""
    body = "\n".join(rows)
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{text(label)}"><table>\n{body}\n</table></div>'


def chart(title: str, words: str, labels: Sequence[str], shares: Sequence[float]) -> str:
    """Return a table with a bar for each share."""
    rows = [
        f'<tr><th scope="row">{text(label)}</th><td>{100 * share:.1f} %</td><td><svg class="bar" viewBox="0 0 100 8" '
        f'preserveAspectRatio="none" aria-hidden="true"><rect width="{100 * share:.2f}" height="8"/></svg></td></tr>'
        for label, share in zip(labels, shares, strict=True)
    ]
    return f"<table><caption>{title}<small>{words}</small></caption>{''.join(rows)}</table>"
