"""SVG pictures of unmasking order: one column per position, one row per forward pass."""

from collections.abc import Iterable
from html import escape

from ..core.spec import Spec
from ..core.trace import Trace
from ..text.words import piece
from .cells import stays

COLUMN, ROW, LEFT, TOP, LETTER = 18, 13, 34, 44, 7.3  # pixels
# Every selector starts with the class, because in a page styles apply to all of its pictures.
STYLE = """
.filling text{font:12px ui-monospace,monospace;fill:#24292f;white-space:pre}
.filling .small{font-size:10px;fill:#57606a}
.filling .paper{fill:#fff}.filling .stands{fill:#cfe3fb}.filling .decided{fill:#1f6feb}
.filling .back{stroke:#bc4c00;stroke-width:2;fill:none}.filling .block{stroke:#8c959f;stroke-width:1}
@media(prefers-color-scheme:dark){.filling text{fill:#e6edf3}.filling .small{fill:#9ea7b3}.filling .paper{fill:#161b22}
.filling .stands{fill:#1d3a63}.filling .decided{fill:#58a6ff}.filling .back{stroke:#ffa657}.filling .block{stroke:#6e7681}}
""".strip()


def filling_svg(pictures: Iterable[tuple[str, Trace]]) -> str:
    """Return a picture of request 0 of each trace, stacked vertically with titles.

    A dark cell marks the forward pass that unmasked a position, the light bar below it the lifetime
    of the token, a cross the remasking. Lines separate blocks. Readable on light and dark pages.

    Args:
        pictures: Title and trace of each picture.
    """
    top, parts, width = 0.0, list[str](), 0.0
    marks = {"decided": "unmasked", "stands": "keeps its token"}
    for title, trace in pictures:
        panel, panel_width, height, crossed = _panel(title, trace, top)
        parts += panel
        width, top = max(width, panel_width), top + height
        if crossed:
            marks["back"] = "remasked"
    parts += _legend(marks, top)
    top += 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="filling" viewBox="0 0 {width:.0f} {top:.0f}" width="{width:.0f}"'
    paper = '<rect class="paper" width="100%" height="100%"/>'
    return "\n".join([f'{head} role="img">', f"<style>{STYLE}</style>", paper, *parts, "</svg>"]) + "\n"


def _panel(title: str, trace: Trace, top: float) -> tuple[list[str], float, float, bool]:
    """Return a panel's SVG lines, width and height, and whether anything was remasked."""
    *_, sequence = (found for state in trace.states() if (found := state.find(0)) is not None)
    lifetimes, spec = stays(trace), trace.first.config.spec
    count, forwards = 1 + max(stay.offset for stay in lifetimes), sequence.steps
    first = top + TOP
    bottom = first + forwards * ROW
    last_tokens = {stay.offset: stay.token for stay in lifetimes}  # in order of time
    texts = [_text(spec, last_tokens.get(offset)) for offset in range(count)]
    lines = [
        f'<text x="8" y="{top + 20:g}">{escape(title)}</text>',
        f'<text class="small" x="8" y="{first - 6:g}">forward pass</text>',
    ]
    for row in range(1, forwards + 1) if forwards < 40 else range(5, forwards + 1, 5):
        lines.append(f'<text class="small" x="8" y="{first + row * ROW - 3:g}">{row:2}</text>')
    bars = [_box(stay.offset, max(stay.since, 1), (stay.until or forwards + 1) - 1, first) for stay in lifetimes]
    lines.append(_path("stands", bars))
    lines.append(_path("decided", [_box(stay.offset, stay.since, stay.since, first) for stay in lifetimes if stay.since]))
    # No cross for replaced tokens: it would cover the cell of the new token.
    back = [_cross(stay.offset, stay.until, first) for stay in lifetimes if stay.until and not stay.replaced]
    if back:
        lines.append(_path("back", back))
    starts = [block.start - len(sequence.request.prompt) for block in (*sequence.progress.past, *sequence.progress.window)]
    edges = [f"M{LEFT + start * COLUMN - 0.5:g} {first:g}V{bottom + 8:g}" for start in starts if 0 <= start < count]
    lines.append(_path("block", edges))
    for offset, text in enumerate(texts):
        place = f"translate({LEFT + offset * COLUMN + 5:g} {bottom + 6:g})rotate(90)"
        lines.append(f'<text transform="{place}">{escape(text)}</text>')
    width = max(LEFT + count * COLUMN + 10, 20 + LETTER * len(title))
    height = bottom - top + 16 + LETTER * max(map(len, texts))
    return lines, width, height, bool(back)


def _text(spec: Spec, token: int | None) -> str:
    """Return the text of a token with visible blanks."""
    return "end" if token in spec.eos_ids else piece(spec, token).replace(" ", "\N{OPEN BOX}")


def _box(offset: int, first: int, last: int, top: float) -> str:
    """Return the path of a rectangle in the column of `offset`, from row `first` to row `last`."""
    width, height = COLUMN - 2, (last - first + 1) * ROW - 1
    return f"M{LEFT + offset * COLUMN:g} {top + (first - 1) * ROW:g}h{width}v{height}h-{width}z"


def _cross(offset: int, row: int, top: float) -> str:
    """Return the path of a cross in the column of `offset`."""
    x, y, size = LEFT + offset * COLUMN + 3, top + (row - 1) * ROW + 1, ROW - 3
    return f"M{x:g} {y:g}l{size} {size}m0 -{size}l-{size} {size}"


def _path(kind: str, pieces: Iterable[str]) -> str:
    return f'<path class="{kind}" d="{"".join(pieces)}"/>'


def _legend(marks: dict[str, str], top: float) -> list[str]:
    """Return the legend of the marks, in one line."""
    lines: list[str] = []
    x = 0
    for kind, name in marks.items():
        shape = _cross(0, 1, top) if kind == "back" else _box(0, 1, 1, top)
        lines.append(f'<g transform="translate({x - LEFT + 8} 4)">{_path(kind, [shape])}</g>')
        lines.append(f'<text class="small" x="{x + 30}" y="{top + 14:g}">{name}</text>')
        x += 60 + 6 * len(name)
    return lines
