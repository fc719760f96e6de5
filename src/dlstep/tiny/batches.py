"""The stream of training batches, a pure function of the recipe, the seed and a place in the stream.

Stories come in chunks; a chunk is sorted by length, cut into batches of about the same number of places, and the
batches are shuffled. So a resumed run finds its place again without replaying what it has seen.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count, islice

import torch
from transformers import PreTrainedTokenizerFast

from dlstep.tiny.layout import (
    AbsoluteGrid,
    Grid,
    PromptGrid,
    Rows,
    Sample,
    add_noise,
    first_groups,
    lay_out,
    multi_block_noise,
    row_width,
    single_block_noise,
)
from dlstep.tiny.recipes import BLOCK_SIZE, BUFFER_SIZE, Recipe, Stage
from dlstep.tiny.task import training_stories

CHUNK_STORIES = 1024
WIDTH_STEP = 16  # widths are rounded up to a multiple, so that few shapes occur


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the stream: the next batch is number `batch` of chunk `chunk`."""

    chunk: int = 0
    batch: int = 0


def grid_of(recipe: Recipe) -> Grid:
    """The grid on which the recipe's blocks lie."""
    match recipe.grid:
        case "absolute":
            return AbsoluteGrid(BLOCK_SIZE)
        case "prompt":
            return PromptGrid(BLOCK_SIZE)


def fold_seed(*parts: int | str) -> int:
    """A seed from several numbers or names; the same parts give the same seed on every machine."""
    digest = blake2b("/".join(map(str, parts)).encode(), digest_size=7).digest()
    return int.from_bytes(digest)


def stream(
    recipe: Recipe, tokenizer: PreTrainedTokenizerFast, *, seed: int, cursor: Cursor
) -> Iterator[tuple[tuple[Sample, ...], Cursor]]:
    """Endless batches from `cursor` on, each with the place of the batch after it."""
    for chunk in count(cursor.chunk):
        batches = _chunk_batches(recipe, tokenizer, seed, chunk)
        begin = cursor.batch if chunk == cursor.chunk else 0
        for index in range(begin, len(batches)):
            yield batches[index], Cursor(chunk, index + 1)


def noisy_rows(recipe: Recipe, stage: Stage, batch: tuple[Sample, ...], *, seed: int, step: int) -> Rows:
    """Lay a batch out and add one step's noise; the same step draws the same noise."""
    grid = grid_of(recipe)
    generator = torch.Generator().manual_seed(fold_seed(seed, "noise", step))
    widest = max(row_width(sample, grid) for sample in batch)
    rows = lay_out(batch, grid, width=_rounded(widest))
    if torch.rand((), generator=generator) < stage.multi_block_share:
        noise = multi_block_noise(rows, first_groups(batch, grid), generator, most_blocks=BUFFER_SIZE)
    else:
        noise = single_block_noise(rows, generator)
    return add_noise(rows, batch, noise, generator)


def _chunk_batches(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, seed: int, chunk: int) -> list[tuple[Sample, ...]]:
    """The batches of one chunk in the order in which they are trained."""
    source = random.Random(fold_seed(seed, "chunk", chunk))
    stories = list(islice(training_stories(fold_seed(seed, "stories", chunk)), CHUNK_STORIES))
    prompts = tokenizer([prompt for prompt, _ in stories])["input_ids"]
    responses = tokenizer([response for _, response in stories])["input_ids"]
    samples = []
    for prompt, response in zip(prompts, responses, strict=True):
        spare = source.randint(1, BUFFER_SIZE - 1) if source.random() < recipe.spare_block_share else 0
        samples.append(Sample(tuple(prompt), tuple(response), spare))
    grid = grid_of(recipe)
    samples.sort(key=lambda sample: row_width(sample, grid))
    batches: list[tuple[Sample, ...]] = []
    begin = 0
    for stop in range(1, len(samples) + 1):
        # Sorted, so the story at `stop` is the widest of a batch that would include it.
        if stop == len(samples) or (stop + 1 - begin) * _rounded(row_width(samples[stop], grid)) > recipe.batch_places:
            batches.append(tuple(samples[begin:stop]))
            begin = stop
    source.shuffle(batches)
    return batches


def _rounded(width: int) -> int:
    return -(-width // WIDTH_STEP) * WIDTH_STEP
