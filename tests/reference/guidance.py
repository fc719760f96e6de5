"""LLaDA's loop with classifier-free guidance: low-confidence remasking, semi-autoregressive blocks, no cache.

After the published `generate`: prompt and masks and, for the second input, masks alone are one batch; of the tokens sampled in
a block, a pass keeps an even share, the most confident first. Nothing ends an answer early.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .authors_code import even_shares
from .models import MASK, WORDS, Dense


def guided_logits(network: Dense, canvas: Sequence[int], length: int, cfg_scale: float) -> Tensor:
    """Logits of all positions, moved away from those without the prompt."""
    logits = network.predict(canvas, lambda position: 0)
    if cfg_scale > 0.0:
        un_logits = network.predict([MASK] * length + list(canvas[length:]), lambda position: 0)
        logits = un_logits + (cfg_scale + 1) * (logits - un_logits)
    return logits


def decode(
    network: Dense, prompt: Sequence[int], gen_length: int, block_length: int, steps: int, cfg_scale: float
) -> list[int]:
    """The answer of `gen_length` tokens, a multiple of `block_length`, after `steps` passes for each block."""
    length = len(prompt)
    canvas = [*prompt, *[MASK] * gen_length]
    for begin in range(length, length + gen_length, block_length):
        end = begin + block_length
        for share in even_shares(block_length, steps):
            logits = guided_logits(network, canvas, length, cfg_scale)[:, :WORDS].clone()
            logits[:, MASK] = -torch.inf
            best, tokens = logits.double().softmax(-1).max(-1)
            masked = [position for position in range(begin, end) if canvas[position] == MASK]
            order = sorted(masked, key=lambda position: -best[position].item())
            for position in masked:
                top = logits[position].topk(2).values
                network.note((top[0] - top[1]).item())
            if share < len(order):
                network.note((best[order[share - 1]] - best[order[share]]).item() if share else 1.0)
            for position in order[:share]:
                canvas[position] = int(tokens[position])
    return canvas[length:]
