"""Fast-dLLM: a canvas decoded block by block under full attention, with keys and values that may be stale.

The canvas is the prompt and the whole answer, whose blocks are counted from the prompt's end; the last one may be shorter. A
block begins with a forward over the canvas. With a prefix cache, what lies before the block is then kept as it was; with a
dual cache also what lies behind it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from .fast_dllm_v2 import finished, without
from .models import MASK, Dense, Stored


@dataclass(frozen=True)
class Rules:
    """Hyperparameters; with `steps_per_block` a block takes an even share of its positions in each forward."""

    block_size: int
    cache: str = "dual"
    accept_threshold: float = 0.9
    steps_per_block: int | None = None


def accepted(network: Dense, rows: dict[int, Tensor], quota: int | None, threshold: float) -> dict[int, int]:
    """The tokens of the `quota` most confident positions, or else of all confident ones and of the best in any case."""
    proposals = {position: network.propose(row) for position, row in rows.items()}
    ordered = sorted(proposals, key=lambda position: -proposals[position].probability)
    if quota is None:
        network.note_best([proposal.probability for proposal in proposals.values()])
        for proposal in proposals.values():
            network.note(proposal.probability - threshold)
        quota = max(1, sum(proposal.probability >= threshold for proposal in proposals.values()))
    elif quota < len(ordered):
        network.note(proposals[ordered[quota - 1]].probability - proposals[ordered[quota]].probability)
    return {position: proposals[position].token for position in ordered[:quota]}


def share(count: int, steps: int | None, step: int) -> int | None:
    """How many of `count` positions the forward number `step` of a block takes: what is left over goes first."""
    if steps is None:
        return None
    return count // steps + (step < count % steps)


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
        step = 0
        count = canvas[begin:end].count(MASK)
        while masked := [position for position in range(begin, end) if canvas[position] == MASK]:
            # A shifted head predicts the first position of a block with the row before it, which only this one feeds.
            if stored is None or rules.cache == "none" or (network.shift and masked[0] == begin):
                start, (logits, stored) = 0, network.forward(canvas, 0, [])
            else:
                start, logits = begin, refined(network, canvas, begin, end, stored, rules.cache)
            rows = {position: logits[position - network.shift - start] for position in masked}
            quota = share(count, rules.steps_per_block, step)
            for position, token in accepted(network, rows, quota, rules.accept_threshold).items():
                canvas[position] = token
            step += 1
            answer = finished(canvas, length)
            if answer is not None:
                return answer
    raise AssertionError("the answer is finished when its last block is")


def refined(network: Dense, canvas: Sequence[int], begin: int, end: int, stored: Stored, cache: str) -> Tensor:
    """Rows from `begin` on, of the block or of all that follows, which see what was stored of all other positions."""
    stop = end if cache == "dual" else len(canvas)
    others = [(without(keys, begin, stop), without(values, begin, stop)) for keys, values in stored]
    return network.forward(canvas[begin:stop], begin, others)[0]
