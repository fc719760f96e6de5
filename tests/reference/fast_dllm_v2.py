"""Fast-dLLM v2: a block is decoded sub-block by sub-block, and a sub-block may be refined against stale keys and values.

The head is shifted: row p - 1 predicts position p. The first token of a block is predicted by the last row of the block before
it, in the forward that computes that block with its final tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .models import EOS, MASK, Dense, Stored, before_end


@dataclass(frozen=True)
class Rules:
    """Hyperparameters: `block_size` positions make a sub-block, `buffer_size` sub-blocks a block."""

    block_size: int
    buffer_size: int
    accept_threshold: float = 0.9
    fdv2_use_block_cache: bool = True


def full(network: Dense, tokens: Sequence[int], size: int) -> tuple[Tensor, Stored]:
    """Rows, keys and values of all `tokens`; every position sees its own block and those before it."""
    blocks = torch.arange(len(tokens)) // size
    return network.forward(tokens, 0, [], blocks[None, :] <= blocks[:, None])


def refined(network: Dense, tokens: Sequence[int], start: int, stop: int, stored: Stored) -> tuple[Tensor, Stored]:
    """Rows of `[start, stop)`, which see each other and what is stored elsewhere, and what is stored afterwards."""

    def spliced(rows: Tensor, *new: Tensor) -> Tensor:
        return torch.cat((rows[:, :, :start], *new, rows[:, :, stop:]), 2)

    others = [(spliced(keys), spliced(values)) for keys, values in stored]
    logits, own = network.forward(tokens[start:stop], start, others)
    pairs = zip(stored, own, strict=True)
    return logits, [(spliced(keys, new), spliced(values, fresh)) for (keys, values), (new, fresh) in pairs]


def seed(network: Dense, tokens: Sequence[int], position: int, size: int) -> int:
    """The first token of the block at `position`, from the last row of the one before."""
    return network.propose(full(network, tokens[:position], size)[0][-1]).token


def accepted(network: Dense, rows: dict[int, Tensor], threshold: float, *, inclusive: bool = False) -> dict[int, int]:
    """The tokens of confident positions, or of the most confident one."""
    proposals = {position: network.propose(row) for position, row in rows.items()}
    chances = {position: proposal.probability for position, proposal in proposals.items()}
    for chance in chances.values():
        network.note(chance - threshold)
    chosen = [p for p, chance in chances.items() if chance > threshold or (inclusive and chance == threshold)]
    if not chosen:
        network.note_best([*chances.values()])
        chosen = [max(chances, key=lambda position: chances[position])]
    return {position: proposals[position].token for position in chosen}


def finished(tokens: Sequence[int], begin: int) -> list[int] | None:
    """The answer from `begin` on, if nothing before its end is masked."""
    known = list(tokens[begin:])
    return before_end(known[: known.index(MASK)]) if MASK in known else before_end([*known, EOS])


def decode(network: Dense, prompt: Sequence[int], limit: int, rules: Rules) -> list[int]:
    """The answer to `prompt`, whose positions end before `limit`; nothing from there on is fed."""
    length, sub, size = len(prompt), rules.block_size, rules.block_size * rules.buffer_size
    tokens = [*prompt, *[MASK] * (limit - length)]
    begin, stored = length // size * size, None
    if begin == length:
        tokens[begin] = seed(network, tokens, begin, size)
    while (answer := finished(tokens, length)) is None:
        end = min(begin + size, limit)
        masked = [position for position in range(max(begin, length), end) if tokens[position] == MASK]
        if not masked:  # the block is final: it is computed once more, and the next one begins
            tokens[end] = seed(network, tokens, end, size)
            begin, stored = end, None
            continue
        start = masked[0] // sub * sub
        stop = min(start + sub, end)
        if stored is None or masked[0] == start or not rules.fdv2_use_block_cache:
            row_of, (logits, stored) = 0, full(network, tokens[:end], size)
        else:  # the row before each masked position is in the sub-block
            row_of, (logits, stored) = start, refined(network, tokens, start, stop, stored)
        rows = {position: logits[position - 1 - row_of] for position in masked if position < stop}
        for position, token in accepted(network, rows, rules.accept_threshold).items():
            tokens[position] = token
    return answer
