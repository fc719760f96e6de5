"""Scripted acceptance of a fixed number of tokens per forward pass, so that engines can be compared on equal work."""

from dataclasses import replace
from itertools import repeat
from random import Random

from ..core import NO_SAMPLES, Plan, Samples, SequenceState, Span, SpanSamples

# Strategies that use the network's own samples: their options determine the pace.
PACED_BY_OPTIONS = ("diffusion_gemma",)
SURE, UNSURE = 1.0, 0.25


class Pace:
    """Scripted rows with `tokens_per_forward` confident positions per request and pass, on average.

    Fractions, and positions that did not fit, carry over to the next pass. The first sampled
    position is always confident, the others are random; tokens are random.
    """

    def __init__(self, tokens_per_forward: float, vocabulary: int, seed: int = 0) -> None:
        if tokens_per_forward < 1.0:
            raise ValueError(
                f"tokens_per_forward must be at least 1, because each forward pass unmasks one, got {tokens_per_forward}"
            )
        self._pace = tokens_per_forward
        self._vocabulary = vocabulary
        self._random = Random(seed)
        self._saved: dict[int, float] = {}

    def fed(self, plan: Plan, mask_id: int | None) -> Plan:
        """Return `plan` with random ids instead of masks, which would all be routed to the same experts."""
        if mask_id is None:
            return plan
        spans = [replace(span, tokens=tuple(map(self._other, span.tokens, repeat(mask_id)))) for span in plan.spans]
        return replace(plan, spans=tuple(spans))

    def _other(self, token: int, mask_id: int) -> int:
        return self._random.randrange(self._vocabulary - 2) if token == mask_id else token

    def samples(self, plan: Plan) -> Samples:
        """Return the scripted samples for `plan`."""
        return Samples(plan, tuple([self._rows(span) if span.sampled else NO_SAMPLES for span in plan.spans]), checked=True)

    def _rows(self, span: Span) -> SpanSamples:
        count = len(span.sampled)
        saved = self._saved.get(span.id, 0.0) + self._pace
        sure = min(count, max(1, int(saved)))
        self._saved[span.id] = saved - sure
        probabilities = [UNSURE] * count
        probabilities[0] = SURE
        for place in self._random.sample(range(1, count), sure - 1):
            probabilities[place] = SURE
        # Special tokens are the last two ids.
        tokens = self._random.choices(range(self._vocabulary - 2), k=count)
        return SpanSamples(tuple(tokens), tuple(probabilities))


def unmasked(sequence: SequenceState) -> int:
    """Return the number of unmasked positions up to the window's end."""
    end = sequence.window[-1].end if sequence.window else sequence.final
    return end - sum(len(block.masked) for block in sequence.window)
