"""Pictures: the order of unmasking, the candidates of a position, the entropies of a canvas, heat maps.

They need matplotlib, which the first picture imports.
"""

from collections.abc import Iterable, Sequence
from io import StringIO
from math import exp, nan
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import catch_warnings

from ..core import Fields, Trace
from ..extras import require
from ..text.words import piece, printable
from .stays import stays

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# SVG text instead of outlines, so that viewers can show characters that matplotlib's fonts lack. The salt makes ids equal in
# each run.
SVG: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "dlstep", "font.sans-serif": ["DejaVu Sans", "Arial"]}
BLANK = "\N{OPEN BOX}"  # stands for a space
Rows = Iterable[Fields]  # those of `Observation.rows`


class Picture(NamedTuple):
    """A picture, which notebooks display."""

    title: str
    """The heading of the picture."""
    figure: "Figure"
    """The figure of matplotlib; `figure.savefig(path, bbox_inches="tight")` writes it to a file."""

    def _repr_svg_(self) -> str:
        """Return the picture as SVG."""
        from matplotlib import rc_context

        file = StringIO()
        with (
            rc_context(SVG),
            catch_warnings(action="ignore"),
        ):
            self.figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Creator": None, "Date": None})
        return file.getvalue()


def candidates_picture(rows: Rows, offset: int, *, request: int = 0) -> Picture:
    """Return the most probable tokens of a position over the steps that sampled it: the height is the probability.

    Each token has a colour; ten colours repeat. The sampled one is outlined.

    Args:
        rows: The rows of observations.
        offset: Position in the answer.
        request: Id of the request.

    Raises:
        ValueError: If no row is about this position, or matplotlib is not installed.
    """
    found = _found(rows, request=request, offset=offset)
    tokens = list(dict.fromkeys(row["token_id"] for row in found))
    tops = dict.fromkeys((row["step"] for row in found), 0.0)
    picture, axes = _picture(f"Candidates of offset {offset} over the steps, by probability", len(tops), 2.7)
    for row in found:
        step, chance = row["step"], exp(row["log_probability"])
        colour = (f"C{tokens.index(row['token_id'])}", 0.5)
        bar = axes.bar(f"step {step}", chance, bottom=tops[step], color=colour, edgecolor="black", linewidth=row["sampled"])
        if chance > 0.06:
            axes.bar_label(bar, [row["name"][:6]], label_type="center", parse_math=False)
        tops[step] += chance
    axes.set_ylim(0, 1)
    return picture


def entropy_picture(rows: Rows, *, request: int = 0) -> Picture:
    """Return a heat map of entropies: a row for each step, a column for each sampled position of the answer.

    Below a column are its offset and the token that was sampled last. Grey cells were not sampled.

    Args:
        rows: The rows of observations.
        request: Id of the request.

    Raises:
        ValueError: If no row is about this request, or matplotlib is not installed.
    """
    found = _found(rows, request=request)
    cells = {(row["step"], row["offset"]): row["entropy"] for row in found}
    names = {row["offset"]: row["name"] for row in found if row["sampled"]}
    steps, offsets = (sorted({*each}) for each in zip(*cells, strict=True))
    return heat_map(
        "Entropy of each sampled position, in nats",
        [[cells.get((step, offset), nan) for offset in offsets] for step in steps],
        [f"step {step}" for step in steps],
        [f"{offset}: {names.get(offset, '')}" for offset in offsets],
    )


def _found(rows: Rows, **place: int) -> list[Fields]:
    """Return the rows of the distributions from which passes sampled at a place.

    Each has the `name` of its token: the text with visible blanks, or the number.
    """
    found = [row for row in rows if place.items() <= row.items()]
    if not found:
        raise ValueError("no row is about this position or request: give the rows of observations that sampled it")
    last = max(row["layer"] for row in found)
    return [
        {**row, "name": printable(row["text"]).replace(" ", BLANK) or f"#{row['token_id']}"}
        for row in sorted(found, key=lambda row: row["step"])
        if row["layer"] == last
    ]


def filling_picture(trace: Trace, title: str = "", *, request: int = 0) -> Picture:
    """Return a picture of the order of unmasking: a row for each forward pass, a column for each position of the answer.

    A dark cell marks the pass that unmasked a position, the light cells below it the passes that kept the token, a cross
    the pass that remasked it. Lines separate blocks.

    Args:
        trace: The trace of a decode.
        title: The heading.
        request: Id of the request.

    Raises:
        KeyError: If the trace does not contain the request.
        ValueError: If matplotlib is not installed.
    """
    sequence, lifetimes = trace.state.find(request), stays(trace, request)
    assert sequence is not None, "`stays` found the request"
    texts = {
        stay.offset: piece(trace.first.config.spec, stay.token).replace(" ", BLANK) for stay in lifetimes
    }  # later tokens replace earlier ones
    count, steps, start = max(texts) + 1, sequence.steps, sequence.request.start
    cells = [[0.0] * count for _ in range(steps)]
    for stay in lifetimes:
        for step in range(max(stay.since, 1), stay.until or steps + 1):
            cells[step - 1][stay.offset] = 0.8 if step == stay.since else 0.3
    picture, axes = _picture(title, count / 4, steps / 6 + 1)
    extent = (-0.5, count - 0.5, steps + 0.5, 0.5)
    axes.imshow(cells, "Blues", aspect="auto", vmin=0, vmax=1, interpolation="none", extent=extent)
    axes.set_xticks(range(count), [texts.get(offset, "") for offset in range(count)], rotation=270, parse_math=False)
    axes.set(ylabel="forward pass", xlim=extent[:2])
    for block in (*sequence.progress.past, *sequence.progress.window):
        axes.axvline(block.start - start - 0.5, color="grey")
    for stay in lifetimes:
        if stay.until and not stay.replaced:
            axes.plot(stay.offset, stay.until, "x", color="C1")
    return picture


def heat_map(title: str, values: Sequence[Sequence[float]], sides: Sequence[str], columns: Sequence[str]) -> Picture:
    """Return a heat map with a text for each row and each column. NaN: an empty cell."""
    picture, axes = _picture(title, len(columns) / 3, len(sides) / 3)
    image = axes.imshow(values, "Blues", aspect="auto")
    image.set_clim(0, max(1, image.norm.vmax))
    axes.set_yticks(range(len(sides)), sides)
    axes.set_xticks(range(len(columns)), columns, rotation=270, parse_math=False)
    picture.figure.colorbar(image)
    return picture


def _picture(title: str, width: float, height: float) -> tuple[Picture, Any]:
    """Return a picture of this size in inches, without the texts around its axes, and the axes."""
    require("a picture of observations", "notebook")
    from matplotlib.figure import Figure

    figure = Figure((width, height))
    return Picture(title, figure), figure.add_subplot(title=title, facecolor="lightgrey")
