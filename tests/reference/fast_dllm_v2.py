"""Fast-dLLM v2: a block is decoded sub-block by sub-block, and a sub-block may be refined against stale keys and values.

The head is shifted: row p - 1 predicts position p. The first token of a block is predicted by the last row of the block before
it, in the forward that computes that block with its final tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .models import EOS, MASK, Dense, Stored


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
    others = [(without(keys, start, stop), without(values, start, stop)) for keys, values in stored]
    logits, own = network.forward(tokens[start:stop], start, others)
    spliced = [
        (replaced(keys, start, stop, new_keys), replaced(values, start, stop, new_values))
        for (keys, values), (new_keys, new_values) in zip(stored, own, strict=True)
    ]
    return logits, spliced


def without(rows: Tensor, start: int, stop: int) -> Tensor:
    """`rows` of all positions but `[start, stop)`."""
    return torch.cat((rows[:, :, :start], rows[:, :, stop:]), 2)


def replaced(rows: Tensor, start: int, stop: int, new: Tensor) -> Tensor:
    """`rows` with those of `[start, stop)` replaced."""
    return torch.cat((rows[:, :, :start], new, rows[:, :, stop:]), 2)


def seed(network: Dense, tokens: Sequence[int], position: int, size: int) -> int:
    """The first token of the block at `position`, from the last row of the one before."""
    return network.propose(full(network, tokens[:position], size)[0][-1]).token


def accepted(network: Dense, rows: dict[int, Tensor], threshold: float) -> dict[int, int]:
    """The tokens of confident positions, or of the most confident one."""
    proposals = {position: network.propose(row) for position, row in rows.items()}
    for proposal in proposals.values():
        network.note(proposal.probability - threshold)
    chosen = [position for position, proposal in proposals.items() if proposal.probability > threshold]
    if not chosen:
        network.note_best([proposal.probability for proposal in proposals.values()])
        chosen = [max(proposals, key=lambda position: proposals[position].probability)]
    return {position: proposals[position].token for position in chosen}


def finished(tokens: Sequence[int], begin: int) -> list[int] | None:
    """The answer from `begin` on, if nothing before its end is masked."""
    known = list(tokens[begin:])
    complete = MASK not in known
    known = known if complete else known[: known.index(MASK)]
    if EOS in known:
        return known[: known.index(EOS)]
    return known if complete else None


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
