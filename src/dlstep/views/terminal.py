"""Answers as rich renderables, drawn from their frames: for terminals, and as HTML for notebooks."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..core import Json
from ..text.words import MASKED, counted, printable

# Colours of medium lightness are readable on light and dark backgrounds. Kinds of tokens also differ in weight, and masked
# positions have a distinct character, for terminals without colours and for readers who cannot distinguish them.
ORANGE, BLUE, PURPLE = "#c06000", "#1f7fd0", "#a65ac8"
STYLES = {"prompt": "dim", "masked": "dim", "unmasked": ORANGE, "settled": "bold"}
SURE = 0.9  # tokens with a lower probability are underlined


def answer_text(head: Json, frames: Iterable[Json], *, prompt: bool = True) -> Text:
    """Return an answer as printable text: coloured by kind, and underlined if the probability is below `SURE`.

    Does not validate the JSON.

    Args:
        head: First line of a recording: facts about the request.
        frames: All frames of the answer so far, at least one.
        prompt: Whether to show the prompt.
    """
    text = Text().append(printable(str(head["prompt"])) if prompt else "", STYLES["prompt"])
    settled, window = list[Any](), list[Any]()
    for frame in frames:
        settled, window = settled + frame["tokens"], frame["cells"]
    for place, (_, token, chance, piece) in enumerate([*settled, *window]):
        kind = "masked" if token is None else "settled" if place < len(settled) else "unmasked"
        shown = "\N{END OF PROOF}" if token in head["eos"] else printable(piece or f"#{token} ")
        text.append(MASKED if token is None else shown, STYLES[kind] + " underline" * (token is not None and chance < SURE))
    return text


def answer_title(head: Json, frames: Sequence[Json], now: str = "running") -> str:
    """Return an answer's counts as a line. Does not validate the JSON.

    Args:
        head: First line of a recording: facts about the request.
        frames: All frames of the answer so far, at least one.
        now: What the request is doing if it has not ended.
    """
    last = frames[-1]
    forwards, masked = counted(int(last["nfe"]), "forward pass"), sum(cell[1] is None for cell in last["cells"])
    unmasked = int(last["settled"]) + len(last["cells"]) - masked
    title = f"{now}, {forwards}: {unmasked} unmasked, {masked} masked"
    if "finish_reason" in last:
        title = f"ended by {last['finish_reason']} after {forwards}: {last.get('error') or counted(unmasked, 'token')}"
    return printable(f"request {head['request']}, {title}")


def frames_view(head: Json, frames: Sequence[Json]) -> RenderableType:
    """Return an answer as a panel titled with its counts. Does not validate the JSON.

    Args:
        head: First line of a recording: facts about the request.
        frames: All frames of the answer so far, at least one.
    """
    return Panel(answer_text(head, frames), title=Text(answer_title(head, frames)), title_align="left")


def legend() -> Text:
    """Return the legend of `answer_text`: the colours, and the underline."""
    text = Text()
    for kind, style in STYLES.items():
        text.append(f"{MASKED} {kind}" if kind == "masked" else kind, style).append("  ")
    return text.append(f"probability below {SURE}", "underline")


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """Return a table of any values, shown as `str`.

    Args:
        columns: Names of the columns.
        rows: Values of each row, one per column.
    """
    made = Table(*columns)
    for row in rows:
        made.add_row(*[Text(printable(str(value))) for value in row])
    return made
