"""Pictures of observations: the candidates of a position, the entropies of a canvas, heat maps.

They need matplotlib, which the first picture imports.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import exp, nan
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings

from ..extras import require
from ..text.words import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Iterable[Mapping[str, Any]]  # those of `Observation.rows`


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, which notebooks display."""

    title: str
    """The heading of the picture."""
    figure: "Figure"
    """The figure of matplotlib; `figure.savefig(path, bbox_inches="tight")` writes it to a file."""

    def _repr_svg_(self) -> str:
        """Return the picture as SVG. Texts stay texts, so that a viewer can show characters that matplotlib's fonts lack."""
        from matplotlib import rc_context

        file = StringIO()
        # A fixed salt makes the ids of elements equal in each run.
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dlstep"}), catch_warnings(action="ignore"):
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


def _found(rows: Rows, **place: int) -> list[Mapping[str, Any]]:
    """Return the rows of the distributions from which passes sampled at a place.

    Each has the `name` of its token: the text with visible blanks, or the number.
    """
    found = [row for row in rows if place.items() <= row.items()]
    if not found:
        raise ValueError("no row is about this position or request: give the rows of observations that sampled it")
    last = max(row["layer"] for row in found)
    return [
        {**row, "name": printable(row["text"]).replace(" ", "\N{OPEN BOX}") or f"#{row['token_id']}"}
        for row in sorted(found, key=lambda row: row["step"])
        if row["layer"] == last
    ]


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
