"""Runs of an evaluation, whole and killed."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from dlstep import LLM
from dlstep.engine.loader import LoadedEngine
from dlstep.evaluate.options import EvalOptions
from dlstep.evaluate.runner import evaluate

from ...helpers.killing import killed_while


@cache
def engine() -> LoadedEngine:
    """A model that takes few requests at a time, so that answers end out of order."""
    return LLM("tiny-bd", max_num_reqs=6).engine


def run(options: EvalOptions) -> Path:
    """A run to its end, or what is left of it; its folder."""
    return evaluate(engine(), options).folder


def answers(folder: Path) -> bytes:
    """The file of answers."""
    return (folder / "answers.jsonl").read_bytes()


def killed(options: EvalOptions, after: int) -> int:
    """Run in a child that is killed with -9 once its files have grown by `after` bytes; how many they have grown by."""
    return killed_with(lambda: run(options), Path(options.out), after)


def killed_with(running: Callable[[], object], folder: Path, after: int) -> int:
    """The same with anything that writes answers into a folder."""
    engine()  # loaded once, for all children
    return killed_while(running, [folder / "answers.jsonl"], after)
