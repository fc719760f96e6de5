"""The stream of training batches, a pure function of the recipe, the seed and a place in the
stream.

Stories come in chunks; a chunk is sorted by length, cut into batches of about the same number of
places, and the batches are shuffled. So a resumed run finds its place again without replaying what
it has seen.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count, islice
from typing import assert_never

from transformers import PreTrainedTokenizerFast

from training.layout import AbsoluteGrid, Grid, PromptGrid, Sample, causal_width, row_width
from training.masks import LONGEST_CANVAS
from training.recipes import BLOCK_SIZE, BUFFER_SIZE, CANVAS_LENGTH, Recipe
from training.stories import training_stories

CHUNK_STORIES = 1024
LATER_CANVAS_SHARE = 0.5  # of the answers that do not fit one canvas: those are learnt from their second canvas on
WIDTH_STEP = 16  # widths are rounded up to a multiple, so that few shapes occur


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the stream: the next batch is number `batch` of chunk `chunk`."""

    chunk: int = 0
    batch: int = 0


def grid_of(recipe: Recipe) -> Grid:
    """Return the grid of the recipe's blocks."""
    match recipe.grid:
        case "absolute":
            # Sub-blocks of a shifted model lie in blocks of as many positions as its buffer holds.
            return AbsoluteGrid(BLOCK_SIZE * BUFFER_SIZE if recipe.lesson == "shifted" else BLOCK_SIZE)
        case "prompt":
            return PromptGrid(BLOCK_SIZE)


def places(recipe: Recipe, sample: Sample) -> int:
    """Return the number of places that a sample may need in a batch."""
    match recipe.lesson:
        case "blocks" | "edits" | "shifted":
            return row_width(sample, grid_of(recipe))
        case "joint":
            return causal_width(sample, BLOCK_SIZE)
        case "masked canvas":
            return len(sample.prompt) + LONGEST_CANVAS
        case "random canvas":
            return len(sample.prompt) + CANVAS_LENGTH
        case _:
            assert_never(recipe.lesson)


def rounded(width: int) -> int:
    """Return the width of a batch whose widest row needs `width` places."""
    return -(-width // WIDTH_STEP) * WIDTH_STEP


def fold_seed(*parts: int | str) -> int:
    """Return a seed from several numbers or names; the same parts give the same seed on every
    machine."""
    digest = blake2b("/".join(map(str, parts)).encode(), digest_size=7).digest()
    return int.from_bytes(digest)


def stream(
    recipe: Recipe, tokenizer: PreTrainedTokenizerFast, *, seed: int, cursor: Cursor
) -> Iterator[tuple[tuple[Sample, ...], Cursor]]:
    """Yield batches forever from `cursor` on, each with the cursor of the batch after it."""
    for chunk in count(cursor.chunk):
        batches = _chunk_batches(recipe, tokenizer, seed, chunk)
        begin = cursor.batch if chunk == cursor.chunk else 0
        for index in range(begin, len(batches)):
            yield batches[index], Cursor(chunk, index + 1)


def _chunk_batches(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, seed: int, chunk: int) -> list[tuple[Sample, ...]]:
    """Return the batches of one chunk in the order in which they are trained."""
    source = random.Random(fold_seed(seed, "chunk", chunk))
    stories = list(islice(training_stories(fold_seed(seed, "stories", chunk)), CHUNK_STORIES))
    prompts = tokenizer([prompt for prompt, _ in stories])["input_ids"]
    responses = tokenizer([response for _, response in stories])["input_ids"]
    samples = []
    for prompt, response in zip(prompts, responses, strict=True):
        spare = source.randint(1, BUFFER_SIZE - 1) if source.random() < recipe.spare_block_share else 0
        if recipe.lesson == "random canvas" and len(response) >= CANVAS_LENGTH and source.random() < LATER_CANVAS_SHARE:
            prompt, response = prompt + response[:CANVAS_LENGTH], response[CANVAS_LENGTH:]
        samples.append(Sample(tuple(prompt), tuple(response), spare))
    samples.sort(key=lambda sample: places(recipe, sample))
    batches: list[tuple[Sample, ...]] = []
    begin = 0
    for stop in range(1, len(samples) + 1):
        # Sorted, so the story at `stop` is the widest of a batch that would include it.
        if stop == len(samples) or (stop + 1 - begin) * rounded(places(recipe, samples[stop])) > recipe.batch_places:
            batches.append(tuple(samples[begin:stop]))
            begin = stop
    source.shuffle(batches)
    return batches
