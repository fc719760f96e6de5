"""Measure every strategy and the rule in the README, and write the table of `docs/results.md` and its picture: `make table`."""

from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from make_moving_picture import rule_of_readme
from rich.progress import track

from dlstep import LLM, SamplingParams, tiny
from dlstep.evaluate.frontier import DECODERS
from training.stories import score

PROBLEMS = 500
FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
HEAD = "| strategy | option | answers right | every equation right | tokens per forward pass | forward passes per answer |"


def rows() -> list[dict[str, Any]]:
    """The figures of each way of decoding with each value of its option."""
    rule = {
        "multi_bd buffer 4 rule AllRight": (
            "multi_bd",
            {"buffer_size": 4, "rule": rule_of_readme()},
            {"joint": (0.9, 0.7, 0.5)},
        )
    }
    points = [
        (name, {"decoding_strategy": strategy, **options, option: value}, option)
        for name, (strategy, options, varied) in (DECODERS | rule).items()
        for option, values in varied.items()
        for value in values
    ]
    return [measure(*point) for point in track(points, "measuring")]


def measure(name: str, options: dict[str, Any], option: str) -> dict[str, Any]:
    """Answer all problems together. Ratios are those of sums; `chain` is the share of answers whose every equation is right."""
    problems = tiny.problems(PROBLEMS, 0)
    outputs = LLM(**options).generate([problem.prompt for problem in problems], SamplingParams(max_tokens=64), progress=False)
    scores = [score(problem, output.text) for problem, output in zip(problems, outputs, strict=True)]
    tokens, forwards = sum(len(output.token_ids) for output in outputs), sum(output.nfe for output in outputs)
    return {
        "strategy": options["decoding_strategy"],
        "decoder": name,
        "option": option,
        "value": options[option],
        "answer": fmean(score.answer for score in scores),
        "chain": fmean(score.chain for score in scores),
        "tokens_per_forward": tokens / forwards,
        "forwards": forwards / PROBLEMS,
    }


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
