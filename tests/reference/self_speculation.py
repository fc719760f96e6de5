"""Linear self-speculation as its authors describe it: one request, with everything recomputed in each forward pass.

A draft feeds the text and masks, which attend to one another and to the last token; only its tokens
are used. A verifying pass feeds the text and the drafted tokens causally. Drafted tokens are accepted
up to the first one that differs from the token sampled there. The token sampled at that position, or
after all drafted tokens, is accepted, too. No token past the answer is drafted or sampled.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from .causal import Draws, causal_rows
from .causal_blocks import block_rows
from .models import MASK, Dense, before_end

Adapted = Callable[[int], AbstractContextManager[object]]


def decode(
    network: Dense, prompt: Sequence[int], limit: int, size: int, draws: Draws, adapted: Adapted = nullcontext
) -> tuple[list[int], int, int]:
    """The answer to `prompt`, with all positions below `limit`, and the numbers of drafts and of other passes.

    Within `adapted(position)`, an adapter changes all rows from that position on.
    """
    tokens, drafts, others = list(prompt), 0, 0
    while len(tokens) < limit:
        start = len(tokens)  # the first position without a token
        # Nothing is drafted before the answer has a token.
        count = min(size - 1, limit - 1 - start) if start > len(prompt) else 0
        drafted: list[int] = []
        if count:
            with adapted(start - 1):
                rows = block_rows(network, tokens + [MASK] * count, start - 1)
            drafts += 1
            drafted = [draws.sample(rows[position], position) for position in range(start, start + count)]
        rows = causal_rows(network, tokens + drafted)
        others += 1
        for draft in [*drafted, None]:
            tokens.append(draws.sample(rows[len(tokens) - 1], len(tokens)))
            if tokens[-1] != draft:
                break
        if (answer := before_end(tokens[len(prompt) :])) is not None:
            return answer, drafts, others
    return tokens[len(prompt) :], drafts, others
