"""Acceptance by script: how many tokens a forward takes is given, so that another engine can be given the same work."""

from dataclasses import replace
from itertools import repeat
from random import Random

from ..core import NO_ROWS, Plan, Rows, Samples, Sequence, Span

# Strategies that are given the network's own answers: what they take in a forward follows from their options.
PACED_BY_OPTIONS = ("diffusion_gemma",)
SURE, UNSURE = 1.0, 0.25


class Pace:
    """Rows in place of a network's: `tokens_per_forward` positions of each request are sure in a forward, on average.

    What is not a whole number is saved up, as is what did not fit. The first position that is wanted is always sure, the
    others are any of those wanted; tokens are random.
    """

    def __init__(self, tokens_per_forward: float, vocabulary: int, seed: int = 0) -> None:
        if tokens_per_forward < 1.0:
            raise ValueError(f"tokens_per_forward must be at least 1, because each forward takes one, got {tokens_per_forward}")
        self._pace = tokens_per_forward
        self._vocabulary = vocabulary
        self._random = Random(seed)
        self._saved: dict[int, float] = {}

    def fed(self, plan: Plan, mask_id: int | None) -> Plan:
        """`plan` with random ids fed in place of masks, which would all compute nearly the same and choose the same experts."""
        if mask_id is None:
            return plan
        spans = [replace(span, tokens=tuple(map(self._other, span.tokens, repeat(mask_id)))) for span in plan.spans]
        return replace(plan, spans=tuple(spans))

    def _other(self, token: int, mask_id: int) -> int:
        return self._random.randrange(self._vocabulary - 2) if token == mask_id else token

    def samples(self, plan: Plan) -> Samples:
        """The scripted answer to `plan`."""
        return Samples(plan, tuple([self._rows(span) if span.wanted else NO_ROWS for span in plan.spans]))

    def _rows(self, span: Span) -> Rows:
        count = len(span.wanted)
        saved = self._saved.get(span.id, 0.0) + self._pace
        sure = min(count, max(1, int(saved)))
        self._saved[span.id] = saved - sure
        probabilities = [UNSURE] * count
        probabilities[0] = SURE
        for place in self._random.sample(range(1, count), sure - 1):
            probabilities[place] = SURE
        # Special tokens are the last two ids.
        tokens = self._random.choices(range(self._vocabulary - 2), k=count)
        return Rows(tuple(tokens), tuple(probabilities))


def taken(sequence: Sequence) -> int:
    """Positions in front of the window's end that hold a token."""
    end = sequence.window[-1].end if sequence.window else sequence.final
    return end - sum(len(block.undecided) for block in sequence.window)
