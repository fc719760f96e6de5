"""Rich renderables of the core's values for terminals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..core import SequenceState, State
from ..text.words import counted, piece, printable
from .cells import Phase, cells, status

# Colours of medium lightness, which are readable on light and on dark backgrounds. The phases also differ in brightness,
# slant and the sign of a masked position, for terminals without colours and for readers who cannot tell them apart.
ORANGE, BLUE, PURPLE = "#c06000", "#1f7fd0", "#a65ac8"
PHASE_STYLES: dict[Phase, str] = {
    "prompt": "dim",
    "final": "bold",
    "held": f"bold italic {BLUE}",
    "open": ORANGE,
    "draft": f"italic {PURPLE}",
    "masked": "dim",
    "void": "dim italic",
}
MASK = "\N{LIGHT SHADE}"
Shown = tuple[str | None, Phase, float]  # text (None: a mask), phase and probability of a position
SURE = 0.9  # tokens with a lower probability are underlined


def answer_text(sequence: SequenceState, state: State, *, prompt: bool = True) -> Text:
    """Return a request's positions as text: coloured by phase, and underlined if the probability is below `SURE`.

    Args:
        sequence: The sequence of the request.
        state: The state that holds it.
        prompt: Whether to show the prompt.
    """
    spec = state.config.spec
    return phase_text(
        (None if cell.token is None else piece(spec, cell.token), cell.phase, cell.probability)
        for cell in cells(sequence, spec)
        if cell.phase != "void" and (prompt or cell.phase != "prompt")
    )


def phase_text(shown: Iterable[Shown]) -> Text:
    """Return positions as coloured, printable text."""
    text = Text()
    for piece_, phase, probability in shown:
        unsure = phase not in ("draft", "masked") and probability < SURE
        text.append(MASK if piece_ is None else printable(piece_), PHASE_STYLES[phase] + " underline" * unsure)
    return text


def frames_view(head: Mapping[str, Any], frames: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return an answer's frames as a panel titled with its counts. Does not validate the JSON.

    Args:
        head: First line of a recording: facts about the request.
        frames: All frames of the answer so far, at least one.
    """
    last, settled = frames[-1], [token for frame in frames for token in frame["tokens"]]
    shown: list[Shown] = [(str(head["prompt"]), "prompt", 1.0)]
    for place, (_, token, chance, text) in enumerate([*settled, *last["cells"]]):
        piece_ = "\N{END OF PROOF}" if token in head["eos"] else text or f"#{token} "
        known: Shown = (piece_, "final" if place < len(settled) else "open", chance)
        shown.append((None, "masked", 0.0) if token is None else known)
    status = f"ended by {last['finish_reason']}" if "finish_reason" in last else "running"
    forwards = counted(int(last["nfe"]), "forward pass")
    counts = printable(f"request {head['request']}, {status}, {forwards}, {int(last['settled'])} settled")
    return Panel(phase_text(shown), title=Text(counts), title_align="left")


def legend(phases: Iterable[Phase]) -> Text:
    """Return the legend of `answer_text`: the colours of some phases, and the underline.

    Args:
        phases: The phases to explain.
    """
    text = Text()
    for phase in phases:
        shown = f"{MASK} {phase}" if phase == "masked" else phase
        text.append(shown, PHASE_STYLES[phase]).append("  ")
    return text.append(f"probability below {SURE}", "underline")


def sequence_view(sequence: SequenceState, state: State) -> RenderableType:
    """Return a request as a panel titled with its counts.

    Args:
        sequence: The sequence of the request.
        state: The state that holds it.
    """
    now = status(sequence, sequence in state.waiting)
    counts = f"request {sequence.request.id}, {now}, {counted(sequence.nfe, 'forward pass')}"
    return Panel(answer_text(sequence, state), title=counts, title_align="left")


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
