"""Strided decoding as its authors describe it: one request, everything computed anew in each forward pass.

A pass feeds the text, what was proposed, and masks. Proposals count up to the first one that the
network does not draw itself; the token that it draws there, or after all of them, counts too. After
right proposals, the rows of the masks propose; after a wrong one, nothing is proposed.
"""

from collections.abc import Sequence

from .causal import Draws, causal_rows
from .models import MASK, Dense, before_end


def decode(network: Dense, prompt: Sequence[int], limit: int, masks: int, draws: Draws) -> tuple[list[int], int]:
    """The answer to `prompt`, whose positions end before `limit`, and the number of forward passes."""
    tokens, proposals, forwards = list(prompt), [], 0
    while len(tokens) < limit:
        pending = len(tokens)  # the first position without a token
        fed = (tokens + proposals + [MASK] * masks)[: limit - 1]
        rows = causal_rows(network, fed)
        forwards += 1
        wrong = False
        for proposal in proposals:
            tokens.append(draws.sample(rows[len(tokens) - 1], len(tokens)))
            if tokens[-1] != proposal:
                wrong = True
                break
        checked = len(tokens) - pending
        if not wrong:
            tokens.append(draws.sample(rows[len(tokens) - 1], len(tokens)))
        if (answer := before_end(tokens[len(prompt) :])) is not None:
            return answer, forwards
        # A proposal for the last position could not be checked before that position is drawn itself.
        ahead = [] if wrong else range(pending + checked + 1, min(pending + checked + 1 + masks, limit - 1))
        proposals = [draws.sample(rows[position - 1], position) for position in ahead]
    return tokens[len(prompt) :], forwards
