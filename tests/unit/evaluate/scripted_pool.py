"""A pool that decodes nothing: answers are right or wrong by a rule over options and problem, and come in any order."""

from collections.abc import Callable
from random import Random

from dlstep.core.options import StrategyOptions
from dlstep.evaluate.answerer_pool import AnsweredItem
from dlstep.evaluate.items import Item
from dlstep.evaluate.metrics import ForwardSums
from dlstep.evaluate.versions import EvaluatorInfo, about

from .running import engine

Rule = Callable[[StrategyOptions, int], tuple[bool, int]]  # whether an answer is right, and its forwards
TOKENS = 24


class BrokenOffError(Exception):
    """The process was killed here, so to speak."""


class ScriptedPool:
    """Answers by a rule; breaks off after so many answers, if that is asked for."""

    def __init__(self, rule: Rule, *, seed: int = 0, after: int | None = None) -> None:
        self._rule, self._random, self._after = rule, Random(seed), after
        self._waiting: dict[int, Item] = {}
        self.requested: list[tuple[StrategyOptions, int]] = []

    @property
    def about(self) -> EvaluatorInfo:
        """The facts of an embedded model."""
        return about(engine())

    @property
    def live(self) -> int:
        """Requests without an answer."""
        return len(self._waiting)

    def add(self, place: int, item: Item) -> None:
        """Let an item wait."""
        assert place not in self._waiting
        self._waiting[place] = item
        self.requested.append((item.options, item.document.number))

    def step(self) -> tuple[list[AnsweredItem], ForwardSums]:
        """The answers of some that wait."""
        places = self._random.sample(sorted(self._waiting), min(3, len(self._waiting)))
        if self._after is not None:
            self._after -= len(places)
            if self._after < 0:
                raise BrokenOffError
        return [self._answered(place, self._waiting.pop(place)) for place in places], ForwardSums(1)

    def close(self) -> None:
        """Nothing is left behind."""

    def _answered(self, place: int, item: Item) -> AnsweredItem:
        right, forwards = self._rule(item.options, item.document.number)
        key = {"task": item.task, "document": item.document.number, "options": dict(item.options)}
        answer = item.document.gold if right else "none"
        row = key | {"prompt": item.prompt, "answer": answer, "tokens": [0] * TOKENS, "steps": forwards, "finish": "stop"}
        beside = key | {"forwards": forwards, "computed": 1, "wasted": 0, "seconds": 0.0, "decided_at": []}
        return AnsweredItem(place, row | {"error": "", "seed": 0}, beside)


def trade(options: StrategyOptions, problem: int) -> tuple[bool, int]:
    """The higher the threshold the more often right, with more forwards; a late next block costs forwards only."""
    values = dict(options)
    threshold, late = values["accept_threshold"], values.get("add_block_threshold", 0.0)
    right = Random(problem).random() < 0.4 + 0.6 * threshold
    return right, 3 + round(6 * threshold) + round(4 * late)
