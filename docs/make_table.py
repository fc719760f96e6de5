"""Measure every strategy, and the rule in the README, and write the table of `docs/results.md` and its picture: `make table`.

`python docs/make_table.py rows.json` takes what `dlstep demo --json` printed instead of measuring the strategies.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from make_moving_picture import rule_of_readme
from rich.progress import track

from dlstep import tiny
from dlstep.evaluate.frontier import DECODERS, Decoder, measure

PROBLEMS = 500
FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
HEAD = "| strategy | option | answers right | every equation right | tokens per forward pass | forward passes per answer |"


def rows() -> list[dict[str, Any]]:
    """The figures. Those of the strategies are measured here or read from a file."""
    read = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")) if len(sys.argv) > 1 else []
    own = Decoder("multi_bd", {"buffer_size": 4, "rule": rule_of_readme()}, "joint", (0.9, 0.7, 0.5))
    problems = tiny.problems(PROBLEMS, 0)
    points = [(decoder, value) for decoder in (*(() if read else DECODERS), own) for value in decoder.values]
    return [*read, *(measure(decoder, value, problems) for decoder, value in track(points, "measuring"))]


def line(row: dict[str, Any]) -> str:
    """A line of the table."""
    cells = (
        f"`{row['strategy']}`{row['decoder'].removeprefix(row['strategy'])}",
        f"{row['option'].removesuffix('_threshold').replace('_', ' ')} {row['value']}",
        f"{row['answer']:.1%}",
        f"{row['chain']:.1%}",
        f"{row['tokens_per_forward']:.2f}",
        f"{row['forwards']:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def draw(found: list[dict[str, Any]]) -> None:
    """Accuracy against tokens per forward pass, a line for each decoder."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for decoder in dict.fromkeys(row["decoder"] for row in found):
        own = [row for row in found if row["decoder"] == decoder]
        speed, right = [row["tokens_per_forward"] for row in own], [100 * row["answer"] for row in own]
        axes.plot(speed, right, marker="o", label=decoder)
    axes.set_xlabel("tokens per forward pass")
    axes.set_ylabel("right answers, %")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(FOLDER / "frontier.png", dpi=110)


def main() -> None:
    """Replace what is between the marks in the page, and the picture."""
    found = rows()
    table = "\n".join((HEAD, "|---" * HEAD.count(" | ") + "|---|", *map(line, found)))
    text = RESULTS.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    RESULTS.write_text(f"{before}{BEGIN}{table}\n{END}{after}", encoding="utf-8")
    draw(found)


if __name__ == "__main__":
    main()
