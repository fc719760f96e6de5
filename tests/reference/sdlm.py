"""SDLM as its authors decode it: one request, everything computed anew in each forward pass.

A pass feeds the text but its last token, that token again, and masks; these see one another and the text. Row p-1 predicts
position p. What is predicted above `accept`, up to the first prediction that is not, belongs to the text; at least one.
"""

from collections.abc import Sequence

from .causal import Draws
from .models import MASK, Dense, allowed, before_end


def decode(network: Dense, prompt: Sequence[int], limit: int, size: int, accept: float, draws: Draws) -> tuple[list[int], int]:
    """The answer to `prompt`, whose positions end before `limit`, and the number of forward passes."""
    tokens, forwards = list(prompt), 0
    while len(tokens) < limit:
        start = len(tokens)
        rows = network.predict(tokens + [MASK] * (size - 1), lambda position, last=start - 1: min(position, last))
        rows = rows.roll(-network.shift, 0)
        forwards += 1
        for position in range(start, min(start + size, limit)):
            token = draws.sample(rows[position - 1], position)
            chance = float((allowed(rows[position - 1]) / (draws.temperature or 1.0)).softmax(0)[token])
            network.note(chance - accept)
            if position > start and chance <= accept:
                break
            tokens.append(token)
            if chance <= accept:
                break
        if (answer := before_end(tokens[len(prompt) :])) is not None:
            return answer, forwards
    return tokens[len(prompt) :], forwards
