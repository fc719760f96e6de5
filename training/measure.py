"""Measure an embedded model with several strategies and write the figures into its card:
`python -m training.measure tiny-joint causal_blocks causal_blocks:accept_threshold=0.7`.
"""

import argparse
import json
import shlex
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dlstep import LLM, SamplingParams, tiny
from training.card import Measured, write_figures
from training.stories import score


def figures(llm: LLM, problems: Sequence[tiny.Problem]) -> dict[str, Any]:
    """Answer `problems` together and return the figures of the answers.

    `answer` is the share of problems whose last number is right, and `chain` the share whose every
    equation is right, too. `forwards` is the mean `nfe` per answer; ratios are ratios of sums.
    """
    outputs = llm.generate([problem.prompt for problem in problems], SamplingParams(max_tokens=64), progress=False)
    scores = [score(problem, output.text) for problem, output in zip(problems, outputs, strict=True)]
    tokens, forwards = sum(len(output.token_ids) for output in outputs), sum(output.nfe for output in outputs)
    return {
        "problems": len(problems),
        "answer": fmean(score.answer for score in scores),
        "chain": fmean(score.chain for score in scores),
        "tokens_per_forward": tokens / forwards,
        "forwards": forwards / len(problems),
    }


def measured(model: str, decoder: str, problems: Sequence[tiny.Problem]) -> Measured:
    """Return the figures of a strategy, given as `name` or as `name:option=value,option=value`."""
    strategy, _, given = decoder.partition(":")
    options = {name: json.loads(value) for name, _, value in (pair.partition("=") for pair in given.split(",") if pair)}
    llm = LLM(model, decoding_strategy=strategy, device="cpu", **options)
    return Measured(strategy, figures(llm, problems), options)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m training.measure", description="Measure a model and update its card.")
    parser.add_argument("model", choices=tiny.names())
    parser.add_argument("decoders", nargs="+", help="strategies, as NAME or NAME:OPTION=VALUE,OPTION=VALUE")
    parser.add_argument("--problems", type=int, default=500)
    arguments = parser.parse_args()
    problems = tiny.problems(arguments.problems)
    rows = [measured(arguments.model, decoder, problems) for decoder in arguments.decoders]
    words = [arguments.model, *arguments.decoders]
    if arguments.problems != parser.get_default("problems"):
        words += ["--problems", str(arguments.problems)]
    write_figures(tiny.path(arguments.model), shlex.join(words), rows)


if __name__ == "__main__":
    main()
