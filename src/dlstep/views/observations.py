"""SVG pictures of observations: the candidates of a position, the entropies of a canvas, the attention of a row.

Lines and texts have the colour of the text around a picture, so it suits dark and light pages. Pictures
contain no styles, because the content security policy of the page forbids them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import cycle
from math import exp
from typing import TYPE_CHECKING, Any

from ..core.state import State
from ..text.words import piece, printable

if TYPE_CHECKING:
    from ..engine.observation import Observation

Rows = Iterable[Mapping[str, Any]]  # those of `Observation.rows`
CELL, BAR, HIGH, LEFT, TOP, LETTER = 22, 54, 180, 64, 48, 7.3  # pixels
STRONG = "#1f6feb"
# Colours of candidates: dark text is readable on each.
HUES = ("#9fc5e8", "#fdd98a", "#a9dcb5", "#f2b3b8", "#cdbdf2", "#f0b27a", "#9fdcd8", "#d5d8dc")


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG picture, which notebooks display."""

    title: str
    """The heading of the picture."""
    svg: str = field(repr=False)
    """The SVG element."""

    def _repr_html_(self) -> str:
        return self.svg


def candidates_picture(rows: Rows, offset: int, *, request: int = 0) -> Picture:
    """Return the most probable tokens of a position over the steps that sampled it: the height is the probability.

    Each token has a colour. The sampled one is outlined.

    Args:
        rows: The rows of observations.
        offset: Position in the answer.
        request: Id of the request.

    Raises:
        ValueError: If no row is about this position.
    """
    found = _last_layer([row for row in rows if (row["request"], row["offset"]) == (request, offset)])
    steps = {step: column for column, step in enumerate(sorted({row["step"] for row in found}))}
    tops = [0.0] * len(steps)
    parts = [_text(8, TOP + 10, "1"), _text(8, TOP + HIGH, "0")]
    hues = dict(zip(dict.fromkeys(row["token_id"] for row in found), cycle(HUES), strict=False))
    for row in (row for token in hues for row in found if row["token_id"] == token):
        column, chance, text = steps[row["step"]], exp(row["log_probability"]), _name(row)
        tops[column] += chance
        x, y, high = LEFT + column * BAR, TOP + HIGH * (1 - tops[column]), HIGH * chance
        about = f"step {row['step']}, {text}, probability {chance:.3f}, entropy {row['entropy']:.3f}"
        edge = ' stroke="currentColor" stroke-width="1.5"' if row["sampled"] else ""
        parts.append(_box(x, y, BAR - 4, high, hues[row["token_id"]], 1, about, edge))
        if high > 12:
            parts.append(_text(x + 4, y + high / 2 + 4, text[:6], ' fill="#111" pointer-events="none"'))
    parts += [_text(LEFT + column * BAR, TOP + HIGH + 16, f"step {step}") for step, column in steps.items()]
    title = f"Candidates of offset {offset} over the steps, by probability"
    return _picture(title, LEFT + len(steps) * BAR, TOP + HIGH + 24, parts)


def entropy_picture(rows: Rows, *, request: int = 0) -> Picture:
    """Return a heat map of entropies: a row for each step, a column for each sampled position of the answer.

    Below a column is the token that was sampled last.

    Args:
        rows: The rows of observations.
        request: Id of the request.

    Raises:
        ValueError: If no row is about this request.
    """
    found = _last_layer([row for row in rows if row["request"] == request])
    best = {(row["step"], row["offset"]): row["entropy"] for row in found}
    steps, offsets = sorted({step for step, _ in best}), sorted({offset for _, offset in best})
    most = max(best.values())
    names = {row["offset"]: _name(row) for row in sorted(found, key=lambda row: row["step"]) if row["sampled"]}
    cells = [
        (steps.index(step), offsets.index(offset), entropy / (most or 1), f"step {step}, offset {offset}, {entropy:.3f} nats")
        for (step, offset), entropy in best.items()
    ]
    title = f"Entropy of each sampled position, from 0 to {most:.2f} nats"
    columns = [(str(offset), names.get(offset, "")) for offset in offsets]
    return _heat_map(title, [f"step {step}" for step in steps], columns, cells)


def attention_picture(observation: "Observation", state: State, offset: int, *, layer: int, request: int = 0) -> Picture:
    """Return a heat map of the attention of a row over the answer: a line for each observed head, and their mean.

    Heads are numbered in the order of `heads`. The first column is the sum over the prompt.

    Args:
        observation: An observation with the attention weights of the layer.
        state: The state whose tokens to write below the columns.
        offset: Position in the answer that the row predicts.
        layer: Number of the layer.
        request: Id of the request.

    Raises:
        KeyError: If the pass did not feed the request, or the layer was not observed.
        ValueError: If the pass did not sample the position.
    """
    span = observation[request]
    if span.start + offset not in span.sampled:
        raise ValueError(f"offset={offset} was not sampled in this pass: give one of {[p - span.start for p in span.sampled]}")
    row = span.rows_of_sampled[span.sampled.index(span.start + offset)]
    heads = span.attentions[layer][:, row].tolist()
    heads.append([sum(weights) / len(heads) for weights in zip(*heads, strict=True)])
    sequence = state.find(request)
    known = {} if sequence is None else sequence.unmasked_tokens
    answer = range(span.start, len(span.sources))
    columns = [("", "prompt"), *((str(p - span.start), piece(state.config.spec, known.get(p))) for p in answer)]
    sources = ["sum over the prompt", *(f"offset {p - span.start}, {span.sources[p]}" for p in answer)]
    sides = [*(f"head {head}" for head in range(len(heads) - 1)), "mean"]
    cells = [
        (line, column, weight, f"{sides[line]}, {sources[column]}, weight {weight:.3f}")
        for line, weights in enumerate(heads)
        for column, weight in enumerate([sum(weights[: span.start]), *weights[span.start :]])
    ]
    step = observation.samples.plan.step
    return _heat_map(f"Attention of the row of offset {offset}, layer {layer}, step {step}", sides, columns, cells)


def _last_layer(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the distribution from which the pass sampled."""
    if not rows:
        raise ValueError("no row is about this position or request: give the rows of observations that sampled it")
    last = max(row["layer"] for row in rows)
    return [row for row in rows if row["layer"] == last]


def _name(row: Mapping[str, Any]) -> str:
    """Return the text of a row's token with visible blanks, or its number."""
    return printable(row["text"]).replace(" ", "\N{OPEN BOX}") or f"#{row['token_id']}"


def _heat_map(
    title: str, sides: Sequence[str], columns: Sequence[tuple[str, str]], cells: Iterable[tuple[int, int, float, str]]
) -> Picture:
    """Return a heat map.

    Args:
        title: Its title.
        sides: Text left of each row.
        columns: Texts above and below each column.
        cells: Row, column, share of the full colour and description of each cell.
    """
    bottom = TOP + len(sides) * CELL
    edge = ' stroke="currentColor" stroke-opacity="0.3"'
    parts = [
        _box(LEFT + x * CELL, TOP + y * CELL, CELL - 2, CELL - 2, STRONG, share, about, edge) for y, x, share, about in cells
    ]
    parts += [_text(8, TOP + y * CELL + 15, side) for y, side in enumerate(sides)]
    for x, (above, below) in enumerate(columns):
        parts.append(_text(LEFT + x * CELL + 2, TOP - 6, above, ' font-size="10"'))
        place = f' transform="translate({LEFT + x * CELL + 7} {bottom + 6})rotate(90)"'
        parts.append(_text(0, 0, below, place))
    longest = max(len(below) for _, below in columns)
    return _picture(title, LEFT + len(columns) * CELL, bottom + 16 + LETTER * longest, parts)


def _picture(title: str, width: float, height: float, parts: Iterable[str]) -> Picture:
    width = max(width, 16 + LETTER * len(title)) + 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}" font-family="ui-monospace,monospace" '
        f'font-size="12" fill="currentColor">'
    )
    return Picture(title, "\n".join([head, _text(8, 18, title), *parts, "</svg>"]))


def _box(x: float, y: float, width: float, height: float, fill: str, opacity: float, about: str, edge: str) -> str:
    place = f'x="{x:g}" y="{y:.2f}" width="{width:g}" height="{height:.2f}"'
    return f'<rect {place} fill="{fill}" fill-opacity="{opacity:.3f}"{edge}><title>{escape(about)}</title></rect>'


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{attributes}>{escape(text)}</text>'
