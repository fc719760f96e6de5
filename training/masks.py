"""Masks as a decoder meets them that fills units of a few positions from left to right.

What lies before the cursor's unit is clean, the unit itself is partly masked, and all behind it is
masked. The same units serve sub-blocks of a block and blocks of a canvas; this file also lays such
canvases out.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from training.layout import CLEAN, COPIES, PADDING, Rows, Sample, answer_places, prompt_lengths
from training.tokenizer import EOS_ID, PAD_ID

SHORTEST_CANVAS, LONGEST_CANVAS = 32, 64  # answer positions
WHOLE_SHARE = 0.5  # of the blocks of a joint model, in which all tokens but the first are masked


def sub_block_masks(
    rows: Rows, samples: Sequence[Sample], generator: torch.Generator, *, block_size: int, unit: int, cursor: bool
) -> tuple[Tensor, Tensor]:
    """Return masks of noisy copies, and which of them count: bool [row, width] each.

    Every block of every copy has a cursor of its own; with `cursor` off its masks lie anywhere and
    all count. A block's first token is never masked: it is known before the block is opened.
    """
    start = rows.positions // block_size * block_size
    maskable = answer_places(rows, samples) & (rows.positions > start)
    shape = (len(samples), COPIES + 1, int(rows.group.max()) + 1)
    row, copy = torch.arange(len(samples))[:, None], rows.copy.clamp(min=0)
    level = torch.rand(shape, generator=generator)[row, copy, rows.group]
    share = torch.rand(shape, generator=generator)[row, copy, rows.group]
    if not cursor:
        masked = maskable & (torch.rand(level.shape, generator=generator) < level)
        return masked, masked
    # Units that the prompt fills have nothing to mask.
    first = ((prompt_lengths(samples) - start) // unit).clamp(min=0)
    at = first + (share * (block_size // unit - first)).long()
    return cursor_masks(maskable, (rows.positions - start) // unit, at, level, generator)


def draft_masks(rows: Rows, generator: torch.Generator, *, block_size: int) -> tuple[Tensor, Tensor]:
    """Return which places of noisy blocks are masked, bool [row, width], and the noise level of the
    block of each place, float [row, width].

    The first token of a block is never masked, because a decoder has this token before it drafts
    the others. In `WHOLE_SHARE` of the blocks, all others are masked, as in a draft. The levels of
    the remaining blocks are uniform.
    """
    shape = (len(rows.copy), COPIES + 1, int(rows.group.max()) + 1)
    row, copy = torch.arange(len(rows.copy))[:, None], rows.copy.clamp(min=0)
    level = 1 - torch.rand(shape, generator=generator) * (1 - 1 / block_size)
    level = torch.where(torch.rand(shape, generator=generator) < WHOLE_SHARE, 1.0, level)[row, copy, rows.group]
    maskable = (rows.copy > CLEAN) & (rows.positions > rows.group)
    return maskable & (torch.rand(level.shape, generator=generator) < level), level


def canvas_masks(
    rows: Rows, samples: Sequence[Sample], generator: torch.Generator, *, unit: int, cursor: bool
) -> tuple[Tensor, Tensor]:
    """Return masks of canvases, and which of them count: bool [row, width] each.

    The cursor stands in the answer or in the unit after it; with `cursor` off masks lie anywhere
    and all count.
    """
    maskable = answer_places(rows, samples)
    level = torch.rand((len(samples), 1), generator=generator)
    share = torch.rand((len(samples), 1), generator=generator)
    if not cursor:
        masked = maskable & (torch.rand(maskable.shape, generator=generator) < level)
        return masked, masked
    order = (rows.positions - prompt_lengths(samples)) // unit
    last = torch.where(maskable, order, 0).amax(1, keepdim=True)
    ended = torch.tensor([len(sample.response) for sample in samples])[:, None] // unit
    at = (share * (torch.minimum(ended + 1, last) + 1)).long()
    return cursor_masks(maskable, order, at, level, generator)


def cursor_masks(
    maskable: Tensor, order: Tensor, at: Tensor, level: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return masks of places in unit number `order` for a cursor in unit `at`, and those inside
    that unit."""
    in_unit = maskable & (order == at) & (torch.rand(order.shape, generator=generator) < level)
    return in_unit | (maskable & (order > at)), in_unit


def lay_out_canvases(samples: Sequence[Sample], length: int, *, width: int) -> Rows:
    """Return prompts with `length` answer positions each, filled with end symbols; every place sees
    every place."""
    targets = torch.full((len(samples), width), PAD_ID)
    positions = torch.zeros((len(samples), width), dtype=torch.int64)
    copy = torch.full((len(samples), width), PADDING)
    for row, sample in enumerate(samples):
        answer = (*sample.response, *[EOS_ID] * length)[:length]
        text = torch.tensor((*sample.prompt, *answer))
        targets[row, : len(text)] = text
        positions[row, : len(text)] = torch.arange(len(text))
        copy[row, : len(text)] = 1
    group = torch.zeros_like(positions)
    return Rows(targets, positions, copy, group, group, torch.zeros_like(targets, dtype=torch.bool))
