"""Block-diffusion training rows: a clean half and two noisy copies of the answer, and who may see
whom.

This file owns the grids (which positions form a group), the noise levels and the visibility rule of
training. The rule is the decoder's own: a noisy block sees exactly the positions of the groups up
to its own, from the clean half where they lie before its window and from its own copy where they
lie inside. It never touches a model.

Axes: `row` one story, `width` places of a row, `copy` the noisy copies, `group` the grid's groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.tokenizer import EOS_ID, MASK_ID, PAD_ID

COPIES = 2
CLEAN = 0  # the clean half's number among the copies; the noisy ones are 1 and 2
PADDING = -1
STEEP_SHARE = 0.5  # of the copies with several blocks in a window


@dataclass(frozen=True, slots=True)
class AbsoluteGrid:
    """Blocks counted from position 0; the block in which the prompt ends holds answer positions
    too."""

    block_size: int

    def group(self, position: Tensor, prompt_length: Tensor) -> Tensor:
        """Return the group of each position, broadcast over both arguments: every `block_size`
        positions from 0."""
        del prompt_length
        return position // self.block_size

    def first_start(self, prompt_length: int) -> int:
        """Return the start of the first group that holds answer positions: the tail block's
        start."""
        return prompt_length // self.block_size * self.block_size


@dataclass(frozen=True, slots=True)
class PromptGrid:
    """The whole prompt is group 0 and sees itself in full; blocks are counted from the prompt's
    end."""

    block_size: int

    def group(self, position: Tensor, prompt_length: Tensor) -> Tensor:
        """Return the group of each position, broadcast over both: 0 inside the prompt, 1 for the
        answer's first block."""
        block = torch.div(position - prompt_length, self.block_size, rounding_mode="floor")
        return (block + 1).clamp(min=0)

    def first_start(self, prompt_length: int) -> int:
        """Return the start of the first group that holds answer positions: the prompt's end."""
        return prompt_length


Grid = AbsoluteGrid | PromptGrid


@dataclass(frozen=True, slots=True)
class Sample:
    """One encoded story; `spare_blocks` whole blocks of the end symbol follow the block in which
    the answer ends."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    spare_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of each copy's groups.

    `level` is the probability that an answer token of the group is masked; `window` is the first
    group of the run of groups that are in flight together, so everything before it is read from the
    clean half.
    """

    level: Tensor  # float [row, copy, group]
    window: Tensor  # int64 [row, copy, group]


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of training rows, every field [row, width]."""

    targets: Tensor  # int64, the clean tokens
    positions: Tensor  # int64
    copy: Tensor  # int64, CLEAN, 1, 2 or PADDING
    group: Tensor  # int64
    window: Tensor  # int64, the group itself in the clean half
    masked: Tensor  # bool

    @property
    def inputs(self) -> Tensor:
        """Return the tokens that the model reads, int64 [row, width]."""
        return torch.where(self.masked, MASK_ID, self.targets)


def row_width(sample: Sample, grid: Grid) -> int:
    """Return the number of places of the sample's row."""
    start, stop = _answer_span(sample, grid)
    return max(start, stop - grid.block_size) + COPIES * (stop - start)


def lay_out(samples: Sequence[Sample], grid: Grid, *, width: int | None = None) -> Rows:
    """Lay samples out without noise: nothing masked and every window one group wide.

    The clean half stops where the last block begins, as no noisy block reads further. `width` pads
    further than the longest row. Raises ValueError if a row is longer than that.
    """
    targets, positions, copy = _filled([_line(sample, grid) for sample in samples], width)
    group = grid.group(positions, prompt_lengths(samples))
    return Rows(targets, positions, copy, group, group, torch.zeros_like(targets, dtype=torch.bool))


def causal_width(sample: Sample, block_size: int) -> int:
    """Return the largest number of places of the sample's row in `lay_out_causal`."""
    answer = len(sample.response) + 1
    return len(sample.prompt) + answer + COPIES * -(-answer // block_size) * block_size


def lay_out_causal(samples: Sequence[Sample], origin: Tensor, *, block_size: int, width: int | None = None) -> Rows:
    """Lay samples out without noise, with a causal clean half that includes one end symbol.

    The blocks of a noisy copy begin `origin` [row, copy] positions after the prompt. Each group is
    numbered by its first position, and each clean place is a separate group. A clean place
    therefore sees the clean places up to itself, and a noisy block sees itself and the clean places
    before it. Raises ValueError if a row is longer than `width`.
    """
    lines = [_causal_line(sample, origins, block_size) for sample, origins in zip(samples, origin.tolist(), strict=True)]
    targets, positions, copy = _filled(lines, width)
    begin = prompt_lengths(samples) + origin.gather(1, (copy - 1).clamp(min=0))
    start = begin + (positions - begin) // block_size * block_size
    group = torch.where(copy > CLEAN, start, positions)
    return Rows(targets, positions, copy, group, group, torch.zeros_like(targets, dtype=torch.bool))


def add_noise(rows: Rows, samples: Sequence[Sample], noise: Noise, generator: torch.Generator) -> Rows:
    """Mask answer tokens of the noisy copies at their group's level and set the windows."""
    row = torch.arange(len(samples))[:, None]
    copy = (rows.copy - 1).clamp(min=0)
    level = noise.level[row, copy, rows.group]
    masked = answer_places(rows, samples) & (torch.rand(level.shape, generator=generator) < level)
    window = torch.where(rows.copy > CLEAN, noise.window[row, copy, rows.group], rows.group)
    return Rows(rows.targets, rows.positions, rows.copy, rows.group, window, masked)


def answer_places(rows: Rows, samples: Sequence[Sample]) -> Tensor:
    """Return which places of the noisy copies hold answer positions, bool [row, width]."""
    return (rows.copy > CLEAN) & (rows.positions >= prompt_lengths(samples))


def following(rows: Rows, samples: Sequence[Sample], grid: Grid) -> Tensor:
    """Return the clean token at the position after that of each place, int64 [row, width]; the end
    symbol after the row's text."""
    texts = [torch.tensor(_text(sample, grid)) for sample in samples]
    padded = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=EOS_ID)
    return nn.functional.pad(padded, (0, 1), value=EOS_ID).gather(1, rows.positions + 1)


def single_block_noise(rows: Rows, generator: torch.Generator) -> Noise:
    """Return noise with each block alone in its window, at a level drawn evenly from 0 to 1."""
    shape = _noise_shape(rows)
    return Noise(torch.rand(shape, generator=generator), torch.arange(shape[-1]).expand(shape))


def multi_block_noise(rows: Rows, first_group: Tensor, generator: torch.Generator, *, most_blocks: int) -> Noise:
    """Return windows of 1 to `most_blocks` blocks with levels that never fall inside a window.

    `first_group` [row] is the first group with answer positions; no window reaches over it. Half of
    the copies have steep windows, whose later blocks are almost fully masked: a decoder that opens
    a block as soon as the one before has its first tokens meets these most of the time.
    """
    shape = _noise_shape(rows)
    copies = (*shape[:2], 1)
    size = torch.randint(1, most_blocks + 1, copies, generator=generator)
    group = torch.arange(shape[-1]).expand(shape)
    # Windows are tiled at a random offset, and cut at the first answer group.
    offset = torch.randint(0, most_blocks, copies, generator=generator)
    window = group - torch.remainder(group - first_group[:, None, None] + offset, size)
    window = torch.maximum(window, torch.minimum(first_group[:, None, None], group))
    level = torch.rand(shape, generator=generator)
    steep = torch.rand(copies, generator=generator) < STEEP_SHARE
    squeezed = 1 - (1 - level) * torch.rand(shape, generator=generator).square()
    level = torch.where(steep & (group > window), squeezed, level)
    # A running maximum inside each window: an offset per group keeps the windows apart.
    return Noise((level + 2 * window).cummax(-1).values - 2 * window, window)


def first_groups(samples: Sequence[Sample], grid: Grid) -> Tensor:
    """Return the first group that holds answer positions, int64 [row]."""
    starts = torch.tensor([grid.first_start(len(sample.prompt)) for sample in samples])
    return grid.group(starts, prompt_lengths(samples)[:, 0])


def prompt_lengths(samples: Sequence[Sample]) -> Tensor:
    """Return the length of each prompt, int64 [row, 1]."""
    return torch.tensor([len(sample.prompt) for sample in samples])[:, None]


def attention(rows: Rows) -> Tensor:
    """Return which place (last axis) each place sees, bool [row, 1, width, width].

    Padding sees only itself, so that no softmax is empty.
    """
    copy, other_copy = rows.copy[:, :, None], rows.copy[:, None, :]
    group, other_group = rows.group[:, :, None], rows.group[:, None, :]
    window = rows.window[:, :, None]
    from_clean = (other_copy == CLEAN) & torch.where(copy == CLEAN, other_group <= group, other_group < window)
    from_own = (copy > CLEAN) & (copy == other_copy) & (other_group >= window) & (other_group <= group)
    seen = (from_clean | from_own) & (copy != PADDING)
    return (seen | torch.eye(seen.shape[-1], dtype=torch.bool))[:, None]


def _line(sample: Sample, grid: Grid) -> tuple[list[int], list[int], list[int]]:
    """Return tokens, positions and copy numbers of one row."""
    start, stop = _answer_span(sample, grid)
    text = _text(sample, grid)
    clean = range(max(start, stop - grid.block_size))
    noisy = range(start, stop)
    positions = [*clean, *(list(noisy) * COPIES)]
    copies = [CLEAN] * len(clean) + [copy for copy in range(1, COPIES + 1) for _ in noisy]
    return [text[position] for position in positions], positions, copies


def _causal_line(sample: Sample, origins: Sequence[int], block_size: int) -> tuple[list[int], list[int], list[int]]:
    """Return tokens, positions and copy numbers of one row of `lay_out_causal`."""
    text = [*sample.prompt, *sample.response, EOS_ID]
    positions, copies = list(range(len(text))), [CLEAN] * len(text)
    for copy, origin in enumerate(origins, start=1):
        start = len(sample.prompt) + origin
        blocks = max(1, -(-(len(text) - start) // block_size))
        noisy = range(start, start + blocks * block_size)
        positions += noisy
        copies += [copy] * len(noisy)
    return [text[position] if position < len(text) else EOS_ID for position in positions], positions, copies


def _filled(lines: Sequence[tuple[list[int], list[int], list[int]]], width: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, positions and copy numbers as padded tensors [row, width]."""
    needed = max(len(tokens) for tokens, _, _ in lines)
    width = needed if width is None else width
    if needed > width:
        raise ValueError(f"a row of {needed} places does not fit the width {width}: raise `width` or leave it out")
    targets = torch.full((len(lines), width), PAD_ID)
    positions = torch.zeros((len(lines), width), dtype=torch.int64)
    copy = torch.full((len(lines), width), PADDING)
    for row, (tokens, places, copies) in enumerate(lines):
        targets[row, : len(tokens)] = torch.tensor(tokens)
        positions[row, : len(tokens)] = torch.tensor(places)
        copy[row, : len(tokens)] = torch.tensor(copies)
    return targets, positions, copy


def _text(sample: Sample, grid: Grid) -> list[int]:
    """Return prompt and response, filled with end symbols to the end of the last block."""
    text = [*sample.prompt, *sample.response]
    return text + [EOS_ID] * (_answer_span(sample, grid)[1] - len(text))


def _answer_span(sample: Sample, grid: Grid) -> tuple[int, int]:
    """Return the first position of the answer's first group, and the position after its last block,
    which includes an end symbol."""
    start = grid.first_start(len(sample.prompt))
    length = len(sample.prompt) + len(sample.response) + 1 - start
    blocks = -(-length // grid.block_size) + sample.spare_blocks
    return start, start + blocks * grid.block_size


def _noise_shape(rows: Rows) -> tuple[int, int, int]:
    return len(rows.group), COPIES, int(rows.group.max()) + 1
