"""WeDLM as its authors decode it: one request, everything computed anew in each forward pass.

A pass feeds the text, the words that are known behind it, and the masks, each at its own position, causally in this order.
It decides every mask whose entropy, raised by its distance from the first mask, is below `most`, or the one where it is
least. What is known up to the first mask belongs to the text; as many masks are added at the end.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .causal import Draws
from .models import MASK, Dense, allowed, before_end


def rows_at(network: Dense, tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
    """Logits of rows at these positions, each of which sees itself and the rows before it."""
    sees = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
    with torch.inference_mode():
        return network.network(
            input_ids=torch.tensor([list(tokens)]),
            position_ids=torch.tensor([list(positions)]),
            attention_mask=sees[None, None],
            use_cache=False,
        ).logits[0]


def decode(
    network: Dense, prompt: Sequence[int], limit: int, size: int, most: float, penalty: float, draws: Draws
) -> tuple[list[int], int]:
    """The answer to `prompt`, whose positions end before `limit`, and the number of forward passes."""
    known, start, forwards, draw = dict(enumerate(prompt)), len(prompt), 0, 0
    while start < limit:
        masks = [position for position in range(start, limit) if position not in known and position < start + size]
        order = [*sorted(known), *masks]
        rows = rows_at(network, [known.get(position, MASK) for position in order], order)[-len(masks) :]
        forwards += 1
        values = []
        for row, position in zip(rows, masks, strict=True):
            chances = allowed(row).softmax(0)
            values.append(-float(torch.special.xlogy(chances, chances).sum()) + penalty * (position - masks[0]))
            network.note(values[-1] - most)
        ordered = sorted(values)
        network.note(ordered[1] - ordered[0] if len(values) > 1 else 1.0)
        for row, position, value in zip(rows, masks, values, strict=True):
            if value < most or (ordered[0] >= most and value == ordered[0]):
                known[position] = draws.sample(row, position, draw)
        before, draw = start, draw + 1
        while start in known:
            start += 1
        draw = draw if start == before else 0
        if (answer := before_end([known[position] for position in range(len(prompt), start)])) is not None:
            return answer, forwards
    return [known[position] for position in range(len(prompt), limit)], forwards
