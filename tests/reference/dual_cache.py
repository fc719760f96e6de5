"""Fast-dLLM: a canvas decoded block by block under full attention, with keys and values that may be stale.

The canvas is the prompt and the whole answer, whose blocks are counted from the prompt's end; the last one may be shorter. A
block begins with a forward over the canvas. With a prefix cache, what lies before the block is then kept as it was; with a
dual cache also what lies behind it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from torch import Tensor

from .authors_code import dream_shares, even_shares
from .fast_dllm_v2 import accepted, finished, refined
from .models import MASK, Dense, Stored


@dataclass(frozen=True)
class Rules:
    """Hyperparameters; with a quota a block takes a share of its positions in each of `steps_per_block` forwards."""

    block_size: int
    cache: str = "dual"
    accept_threshold: float = 0.9
    rule: Any = None


def certainty(network: Dense, row: Tensor, order: str) -> float:
    """The probability of a row's proposal, or the negated entropy of the row."""
    chances = network.chances(row)
    return max(chances) if order == "confidence" else sum(chance * log(chance) for chance in chances if chance)


def best(network: Dense, rows: dict[int, Tensor], order: str, quota: int) -> dict[int, int]:
    """The tokens of the `quota` positions that are the most certain."""
    proposals = {position: network.propose(row) for position, row in rows.items()}
    scores = {position: certainty(network, row, order) for position, row in rows.items()}
    ordered = sorted(scores, key=lambda position: -scores[position])
    if quota < len(ordered):
        network.note(scores[ordered[quota - 1]] - scores[ordered[quota]])
    return {position: proposals[position].token for position in ordered[:quota]}


def decode(network: Dense, prompt: Sequence[int], limit: int, rules: Rules, pins: Mapping[int, int] | None = None) -> list[int]:
    """The answer to `prompt`, whose positions end before `limit`; `pins` are the tokens of pinned positions."""
    length, size = len(prompt), rules.block_size
    canvas = [*prompt, *[(pins or {}).get(position, MASK) for position in range(length, limit)]]
    answer = finished(canvas, length)
    if answer is not None:
        return answer
    for begin in range(length, limit, size):
        end = min(begin + size, limit)
        stored: Stored | None = None
        step, count = 0, canvas[begin:end].count(MASK)
        while masked := [position for position in range(begin, end) if canvas[position] == MASK]:
            # A shifted head predicts the first position of a block with the row before it, which only this one feeds.
            if stored is None or rules.cache == "none" or (network.shift and masked[0] == begin):
                start, (logits, stored) = 0, network.forward(canvas, 0, [])
            else:
                start, logits = begin, refined(network, canvas, begin, end if rules.cache == "dual" else limit, stored)[0]
            rows = {position: logits[position - network.shift - start] for position in masked}
            if rules.rule is None:
                chosen = accepted(network, rows, rules.accept_threshold, inclusive=True)
            else:
                shares = even_shares if rules.rule.schedule == "even" else dream_shares
                chosen = best(network, rows, rules.rule.order, shares(count, rules.rule.steps_per_block or count)[step])
            for position, token in chosen.items():
                canvas[position] = token
            step += 1
            answer = finished(canvas, length)
            if answer is not None:
                return answer
    raise AssertionError("the answer is finished when its last block is")
