"""A window that slides over a canvas, with keys and values that may be stale."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .fast_dllm_v2 import accepted, finished, refined
from .models import MASK, Dense, Stored


@dataclass(frozen=True)
class Rules:
    """Hyperparameters: those of the window are fields of the rule, whose inner rule is a threshold."""

    cache: str
    rule: Any


def decode(network: Dense, prompt: Sequence[int], limit: int, rules: Rules) -> list[int]:
    """The answer; a forward feeds the canvas, or the window with what is before it and, with a prefix cache, after it."""
    rule, length = rules.rule, len(prompt)
    canvas = [*prompt, *[MASK] * (limit - length)]
    stored: Stored = []
    since, end = 0, length
    while True:
        masked = [position for position in range(length, limit) if canvas[position] == MASK]
        first = masked[0]
        while sum(position < end for position in masked) < rule.window and end < min(limit, first + (rule.max_window or limit)):
            end += 1
        if not stored or rules.cache == "none" or since >= rule.refresh_count:
            start, since = 0, 0
            logits, stored = network.forward(canvas, 0, [])
        else:
            start = min(max(first - rule.window_delay, length), first - network.shift)
            logits, stored = refined(network, canvas, start, limit if rules.cache == "prefix" else end, stored)
        rows = {position: logits[position - network.shift - start] for position in masked if position < end}
        chosen = accepted(network, rows, rule.inner.accept_threshold, inclusive=True)
        for position, token in chosen.items():
            canvas[position] = token
        since += len(chosen)
        answer = finished(canvas, length)
        if answer is not None:
            return answer
