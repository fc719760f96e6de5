"""The result of a tuner as text of at most 80 columns, and as JSON."""

import json
from typing import Any

from rich.console import Console

from ..core.options import StrategyOptions
from ..evaluate.metrics import Answers, aup, hypervolume
from ..evaluate.tuning import TuningResult
from ..text.words import counted, printable
from ..views.figures import interval, text_table, with_error


def print_tuned(tuned: TuningResult, console: Console, rule: str) -> None:
    """Print the frontier, the figures of the whole curve, and the chosen set."""

    def say(text: str) -> None:
        console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    chosen = tuned.line.index(tuned.chosen)
    for number, point in enumerate(tuned.line, 1):
        say(f"# {number}: {text_of(point.options)}")
    heads = ["#", *(head for part in ("search", "held out") for head in (f"{part}: right, %", "tok/fwd")), ""]
    rows = [
        [str(number), *cells_of(point.sums), *cells_of(held.sums), "chosen" if number == chosen + 1 else ""]
        for number, (point, held) in enumerate(zip(tuned.line, tuned.held, strict=True), 1)
    ]
    console.print(text_table(heads, rows, (len(heads) - 1,)))
    best, held = max(point.accuracy for point in tuned.held), tuned.chosen_held.sums
    right, speed = cells_of(held)
    tried = f"{len(tuned.tried)} of {tuned.space.size} sets of options"
    lines = (
        f"chosen, {rule}: {text_of(tuned.chosen.options)}",
        f"search: {counted(tuned.problems, 'problem')}, {tried}",
        f"  {100 * tuned.share:.1f} % of the answers of the whole grid, {tuned.forwards} forwards, {tuned.seconds:.1f} s",
        f"held out: {counted(held.count, 'problem')}, {right} % right, {speed} tok/fwd",
        f"  AUP {aup(tuned.held, best):.1f} (best accuracy {100 * best:.1f} %), hypervolume {hypervolume(tuned.held):.3f}",
    )
    for line in lines:
        say(line)
    if failed := sum(point.sums.failed for point in tuned.tried):
        say(f"{counted(failed, 'request')} rejected or failed, counted as wrong")


def cells_of(sums: Answers) -> tuple[str, str]:
    """Return accuracy and speed as table cells."""
    return (
        interval(sums.accuracy, *sums.accuracy_interval, 100, 1),
        with_error(sums.tokens_per_forward, sums.tokens_per_forward_error, 2),
    )


def as_json(tuned: TuningResult) -> dict[str, Any]:
    """Return the result as values that JSON can represent."""
    rows = [{
        "options": dict(point.options), "problems": point.sums.count, "accuracy": point.accuracy,
        "tokens_per_forward": point.speed, "held_out_problems": held.sums.count, "held_out_accuracy": held.accuracy,
        "held_out_accuracy_interval": list(held.sums.accuracy_interval),
        "held_out_tokens_per_forward": held.speed, "chosen": point == tuned.chosen,
    } for point, held in zip(tuned.line, tuned.held, strict=True)]  # fmt: skip
    return {
        "frontier": rows, "chosen": dict(tuned.chosen.options), "tried": len(tuned.tried), "sets": tuned.space.size,
        "forwards": tuned.forwards, "seconds": tuned.seconds, "share": tuned.share,
    }  # fmt: skip


def text_of(options: StrategyOptions) -> str:
    """Return options as short text."""
    return " ".join(f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in options)
