"""Simulate how often rows that are truly as right as the best are called worse, and write the table of `docs/evaluation.md`.

Scores are drawn from thresholds on a normal variable for each problem and row, so that rows have a given accuracy and answers
to one problem go together: independently, all alike, in two groups, or as neighbours along a sweep of an option.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import NormalDist

import numpy as np
from rich.progress import track

from dlstep.evaluate.metrics import Array, against_best

PAGE = Path(__file__).parent / "evaluation.md"
BEGIN, END = "<!-- levels -->\n", "<!-- end of levels -->\n"
ROWS, PROBLEMS, ACCURACIES = (2, 5, 12, 40), (40, 150, 500), (0.5, 0.9, 0.99)
SHAPES = ("independent", "alike", "two groups", "neighbours")
RESAMPLES = 999
AGAIN = 5  # least favourable cases that are simulated again, `MORE` times as often
MORE = 10
FALL = 0.1  # of the accuracy of all rows but one, for the power


def drawn(random: np.random.Generator, accuracies: Sequence[float], problems: int, shape: str) -> Array:
    """Return scores, one line for each problem and one column for each row; `shape` is one of `SHAPES`."""
    rows = len(accuracies)
    own = random.standard_normal((problems, rows))
    if shape == "alike":
        own = 0.3**0.5 * own + 0.7**0.5 * random.standard_normal((problems, 1))
    elif shape == "two groups":
        own = 0.1**0.5 * own + 0.9**0.5 * random.standard_normal((problems, 2))[:, np.arange(rows) % 2]
    elif shape == "neighbours":
        for row in range(1, rows):
            own[:, row] = 0.9 * own[:, row - 1] + 0.19**0.5 * own[:, row]
    return (own < [NormalDist().inv_cdf(each) for each in accuracies]).astype(float)


def worse(accuracies: Sequence[float], problems: int, shape: str, runs: int) -> Iterator[Array]:
    """Yield which rows are called worse in each of `runs` comparisons."""
    random = np.random.default_rng(runs)
    for _ in range(runs):
        standings = against_best(drawn(random, accuracies, problems, shape), resamples=RESAMPLES)
        yield np.array([not each.best for each in standings])


def level(rows: int, problems: int, accuracy: float, shape: str, runs: int) -> float:
    """Return the share of equal rows that are called worse."""
    return float(np.mean([*worse([accuracy] * rows, problems, shape, runs)]))


def power(rows: int, problems: int, runs: int) -> float:
    """Return the share of rows that are called worse, and are: one is right in 90 %, the others in 10 points less."""
    found = [*worse([0.9, *[0.9 - FALL] * (rows - 1)], problems, "alike", runs)]
    return float(np.mean(np.array(found)[:, 1:]))


def line(rows: int, *, runs: int) -> tuple[float, list[float]]:
    """Return the largest level for a number of rows, and the power for each number of problems."""
    cases = sorted(product(PROBLEMS, ACCURACIES, SHAPES), key=lambda each: -level(rows, *each, runs))
    return max(level(rows, *each, MORE * runs) for each in cases[:AGAIN]), [power(rows, each, 100) for each in PROBLEMS]


def main() -> None:
    """Write the table."""
    heads = "".join(f" 10 points worse, found with {problems} problems |" for problems in PROBLEMS)
    lines = [f"| rows | equal, called worse, at most |{heads}", "|---|---|---|---|---|"]
    for rows in track(ROWS, "simulating"):
        most, found = line(rows, runs=max(60, 1000 // rows))
        lines.append(f"| {rows} | {most:.1%} | {' | '.join(f'{each:.0%}' for each in found)} |")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("".join((before, BEGIN, "\n".join(lines), "\n", END, after)), encoding="utf-8")


if __name__ == "__main__":
    main()
