"""Laws of the training rows: what a noisy block sees is what the decoder will show it."""

from collections import Counter
from dataclasses import dataclass

import torch
from hypothesis import given, strategies as st

from training.layout import (
    CLEAN,
    COPIES,
    PADDING,
    AbsoluteGrid,
    Grid,
    Noise,
    PromptGrid,
    Rows,
    Sample,
    add_noise,
    attention,
    first_groups,
    lay_out,
    lay_out_causal,
    multi_block_noise,
    row_width,
    single_block_noise,
)
from training.masks import draft_masks

MOST_BLOCKS = 4
ids = st.integers(3, 138)
prompts = st.lists(ids, min_size=1, max_size=20).map(tuple)
responses = st.lists(ids, max_size=20).map(tuple)


@dataclass(frozen=True)
class Case:
    """A batch with its noise."""

    grid: Grid
    samples: tuple[Sample, ...]
    noise: Noise
    rows: Rows


@st.composite
def cases(draw):
    """Random batches on both grids with both kinds of noise."""
    grid = draw(st.sampled_from((AbsoluteGrid, PromptGrid)))(draw(st.integers(1, 8)))
    samples = tuple(draw(st.lists(st.builds(Sample, prompts, responses, st.integers(0, 3)), min_size=1, max_size=3)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    rows = lay_out(samples, grid)
    if draw(st.booleans()):
        noise = multi_block_noise(rows, first_groups(samples, grid), generator, most_blocks=MOST_BLOCKS)
    else:
        noise = single_block_noise(rows, generator)
    return Case(grid, samples, noise, add_noise(rows, samples, noise, generator))


@dataclass(frozen=True)
class CausalCase:
    """A batch with a causal clean half and masked noisy blocks."""

    size: int
    samples: tuple[Sample, ...]
    origin: torch.Tensor
    rows: Rows
    masked: torch.Tensor
    level: torch.Tensor


@st.composite
def causal_cases(draw):
    """Random batches whose blocks begin at any position."""
    size = draw(st.integers(1, 8))
    samples = tuple(draw(st.lists(st.builds(Sample, prompts, responses), min_size=1, max_size=3)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    origin = torch.randint(size, (len(samples), COPIES), generator=generator)
    rows = lay_out_causal(samples, origin, block_size=size)
    masked, level = draft_masks(rows, generator, block_size=size)
    return CausalCase(size, samples, origin, rows, masked, level)


def decode_group(grid, position, prompt_length):
    """The decoder's numbering of groups, in plain integers."""
    match grid:
        case AbsoluteGrid(size):
            return position // size
        case PromptGrid(size):
            return 0 if position < prompt_length else 1 + (position - prompt_length) // size


@given(cases())
def test_a_place_sees_each_position_up_to_its_group_once(case):
    seen = attention(case.rows)[:, 0]
    for row, sample in enumerate(case.samples):
        width = row_width(sample, case.grid)
        positions = case.rows.positions[row].tolist()
        group = {place: decode_group(case.grid, place, len(sample.prompt)) for place in set(positions[:width])}
        for place in range(width):
            visible = Counter(positions[other] for other in seen[row, place].nonzero()[:, 0].tolist())
            own = group[positions[place]]
            assert visible == Counter(position for position, other in group.items() if other <= own)


@given(causal_cases())
def test_a_noisy_block_sees_itself_and_what_is_before_it(case):
    """Clean places see the clean places up to themselves; blocks see themselves and the clean places before them."""
    seen = attention(case.rows)[:, 0]
    for row, sample in enumerate(case.samples):
        places = [*zip(case.rows.copy[row].tolist(), case.rows.positions[row].tolist(), strict=True)]
        stop = len(sample.prompt) + len(sample.response) + 1  # after the end symbol
        for place, (copy, position) in enumerate(places):
            if copy == PADDING:
                continue
            visible = Counter(places[other] for other in seen[row, place].nonzero()[:, 0].tolist())
            if copy == CLEAN:
                expected = [(CLEAN, before) for before in range(position + 1)]
            else:
                begin = len(sample.prompt) + int(case.origin[row, copy - 1])
                start = position - (position - begin) % case.size
                expected = [(CLEAN, before) for before in range(min(start, stop))]
                expected += [(copy, own) for own in range(start, start + case.size)]
            assert visible == Counter(expected)
