"""Blocks that begin where the prompt ends, against the authors' loop, which pads the prompt on the left to whole blocks.

The loop is that of dllm's sampler for bd3lm (ZHZisZZ/dllm 0799718), written anew from reading it, at temperature 0.
"""

import torch

from dlstep.rules.quota import Quota

from .authors_code import best_first, even_shares
from .loops import BLOCK
from .models import EOS, MASK, before_end

PAD = 0  # what is fed at padded positions, which no position sees


def padded_logits(network, padding, tokens, size):
    """Logits of `tokens` after `padding` positions, which see no padding; blocks are counted from the first padded position."""
    padded = torch.tensor([PAD] * padding + list(tokens))
    places = torch.arange(len(padded))
    valid, blocks = places >= padding, places // size
    sees = (blocks[None, :] <= blocks[:, None]) & valid[None, :] & valid[:, None]
    sees |= torch.eye(len(padded), dtype=torch.bool) & ~valid  # a row that sees nothing has no softmax
    with torch.inference_mode():
        logits = network.network(
            input_ids=padded[None],
            position_ids=(places - padding).clamp(min=0)[None],
            attention_mask=sees[None, None],
            use_cache=False,
        ).logits[0]
    return logits.roll(network.shift, 0)[padding:]


def decode(network, prompt, limit, fields):
    """The answer: block after block, each with its shares, until a block has an end of sequence."""
    size, steps, text, length = fields["block_size"], fields["rule"].steps_per_block, list(prompt), len(prompt)
    padding = -length % size
    while len(text) < limit and EOS not in text[length:]:
        block = range(len(text), min(len(text) + size, limit))
        text += [MASK] * len(block)
        for share in even_shares(len(block), steps):
            logits = padded_logits(network, padding, text, size)
            proposals = {position: network.propose(logits[position]) for position in block if text[position] == MASK}
            chances = {position: proposal.probability for position, proposal in proposals.items()}
            ordered = sorted(chances.values(), reverse=True)
            if share < len(ordered):
                network.note(ordered[share - 1] - ordered[share])
            for position in best_first(chances, share):
                text[position] = proposals[position].token
    answer = text[length:]
    ended = before_end(answer)
    return answer if ended is None else ended


def single_blocks(random):
    """Single blocks, with shares that leave no remainder, where the authors round otherwise."""
    rule = Quota(random.choice((1, 2, 4)))
    return {"block_size": BLOCK, "buffer_size": 1, "grid_origin": "prompt_end", "rule": rule}
