"""Block diffusion of a causal network as its authors describe it: one request, everything computed anew.

A block's first token comes from the causal row before it. Then the block is fed with masks, and its
positions see one another and the text before it. Each such forward pass decides the surest mask,
and all others whose token has at least the probability `accept`; without `accept`, one mask. When
no mask is left, or an end of sequence has none before it, the text is fed causally once more.
"""

from collections.abc import Sequence

from torch import Tensor

from .causal import Draws, causal_rows
from .models import EOS, MASK, WORDS, Dense, before_end


def block_rows(network: Dense, tokens: Sequence[int], start: int) -> Tensor:
    """Logits of all rows; from `start` on, positions see one another, and row i is for position i itself."""
    return network.predict(tokens, lambda position: min(position, start)).roll(-network.shift, 0)


def decode(
    network: Dense, prompt: Sequence[int], limit: int, size: int, accept: float | None, draws: Draws
) -> tuple[list[int], int]:
    """The answer to `prompt`, whose positions end before `limit`, and the number of forward passes."""
    tokens, forwards = list(prompt), 0
    while len(tokens) < limit:
        start = len(tokens)
        first = draws.sample(causal_rows(network, tokens)[-1], start)
        forwards += 1
        tokens += [first, *[MASK] * (min(size, limit - start) - 1)]
        for draw in range(size):
            if EOS in tokens[start:] and MASK not in tokens[start : tokens.index(EOS, start)]:
                break
            masked = [position for position in range(start, len(tokens)) if tokens[position] == MASK]
            if not masked:
                break
            rows = block_rows(network, tokens, start)
            forwards += 1
            sampled = {position: draws.sample(rows[position], position, draw) for position in masked}
            sure = {position: network.chances(rows[position])[sampled[position]] for position in masked}
            network.note_best(list(sure.values()))
            surest = max(masked, key=lambda position: sure[position])
            for position in masked:
                network.note(1.0 if accept is None else sure[position] - accept)
                if position == surest or (accept is not None and sure[position] >= accept):
                    tokens[position] = sampled[position]
        if (answer := before_end(tokens[len(prompt) :])) is not None:
            return answer, forwards
    assert all(token < WORDS and token != MASK for token in tokens)
    return tokens[len(prompt) :], forwards
