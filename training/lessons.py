"""One step of learning: from a batch of stories to its loss.

This file owns the exercises: what the model reads, which places answer and with which token. All
random draws are made on the CPU from the generator given, so that a step is the same on every
device.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel, Qwen3ForCausalLM

from training.batches import grid_of, rounded
from training.canvas import canvas_loss
from training.layout import (
    CLEAN,
    COPIES,
    Noise,
    Rows,
    Sample,
    add_noise,
    answer_places,
    attention,
    causal_width,
    first_groups,
    following,
    lay_out,
    lay_out_causal,
    multi_block_noise,
    prompt_lengths,
    row_width,
    single_block_noise,
)
from training.masks import LONGEST_CANVAS, SHORTEST_CANVAS, canvas_masks, draft_masks, lay_out_canvases, sub_block_masks
from training.model import logits_at, soft_embeddings
from training.recipes import BLOCK_SIZE, BUFFER_SIZE, Recipe, Stage
from training.tokenizer import EOS_ID, MASK_ID, VOCABULARY

RANDOM_SHARE = 0.03  # of the answer tokens of a model that edits
SOFT_SHARE = 0.5  # of its batches, which feed its own tokens blended with the mask
KEPT_WEIGHT = 0.3  # in the loss, of tokens that are right already
DRAFT_WEIGHT = 0.3  # in the loss of a joint model, of the masked tokens of blocks; next tokens have weight 1


@dataclass(frozen=True, slots=True)
class Exercise:
    """The model's input, and the right answer at the places where `predicted` holds."""

    inputs: Tensor  # int64 [row, width]
    positions: Tensor  # int64 [row, width]
    seen: Tensor  # bool [row, 1, width, width]
    predicted: Tensor  # bool [row, width]
    answers: Tensor  # int64 [n], row by row

    def to(self, device: torch.device) -> "Exercise":
        """Return a copy on another device."""
        return Exercise(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers of an edit exercise, on its device."""

    token: Tensor  # float [row, width]: picks a sample
    fill: Tensor  # float [row, width]
    random: Tensor  # int64 [row, width]: a token that has nothing to do there, or -1
    level: Tensor  # float [row, width], one a copy: how many masks are filled, or how sure the filled ones are
    by_confidence: Tensor  # bool [row, width], one a copy
    greedy: Tensor  # bool [row, width], one a copy: the likeliest token, not a sample
    soft: bool

    @classmethod
    def draw(cls, rows: Rows, generator: torch.Generator, device: torch.device) -> "Draws":
        """Draw new numbers for rows."""
        shape = rows.copy.shape
        row, copy = torch.arange(len(rows.copy))[:, None], rows.copy.clamp(min=0)

        def uniform(*size: int) -> Tensor:
            return torch.rand(size, generator=generator)

        def one_a_copy() -> Tensor:
            return uniform(len(rows.copy), COPIES + 1)[row, copy].to(device)

        random = torch.randint(EOS_ID, len(VOCABULARY), shape, generator=generator)
        random = torch.where(uniform(*shape) < RANDOM_SHARE, random, -1)
        return cls(
            token=uniform(*shape).to(device),
            fill=uniform(*shape).to(device),
            random=random.to(device),
            level=one_a_copy(),
            by_confidence=one_a_copy() < 0.5,
            greedy=one_a_copy() < 0.5,
            soft=bool(uniform(1) < SOFT_SHARE),
        )


def lesson_loss(
    recipe: Recipe,
    stage: Stage,
    model: PreTrainedModel,
    samples: Sequence[Sample],
    generator: torch.Generator,
) -> Tensor:
    """Return the loss of one step on `samples`, on the model's device."""
    device = model.device
    with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bfloat16"), _kernels(device):
        if recipe.lesson == "random canvas":
            return canvas_loss(model, samples, generator)
        assert isinstance(model, Qwen3ForCausalLM), f"{recipe.name} is a Qwen3, not a {type(model).__name__}"
        match recipe.lesson:
            case "blocks":
                exercise = _masked_blocks(recipe, stage, samples, generator)
            case "edits":
                return _edit_loss(recipe, stage, model, samples, generator)
            case "shifted":
                exercise = shifted_blocks(recipe, stage, samples, generator)
            case "joint":
                return _joint_loss(model, samples, generator)
            case "masked canvas":
                exercise = masked_canvas(stage, samples, generator)
            case _:
                assert_never(recipe.lesson)
        task = exercise.to(device)
        logits = logits_at(model, task.inputs, task.positions, task.seen, task.predicted)
    return nn.functional.cross_entropy(logits.float(), task.answers)


def noisy_rows(recipe: Recipe, stage: Stage, samples: Sequence[Sample], generator: torch.Generator) -> Rows:
    """Return rows of a clean half and noisy copies whose blocks are masked at random levels."""
    grid = grid_of(recipe)
    rows = lay_out(samples, grid, width=rounded(max(row_width(sample, grid) for sample in samples)))
    if torch.rand((), generator=generator) < stage.multi_block_share:
        noise = multi_block_noise(rows, first_groups(samples, grid), generator, most_blocks=BUFFER_SIZE)
    else:
        noise = single_block_noise(rows, generator)
    if recipe.lesson == "edits":
        # More masks, as most of them are filled again.
        noise = Noise(noise.level.sqrt(), noise.window)
    return add_noise(rows, samples, noise, generator)


def _masked_blocks(recipe: Recipe, stage: Stage, samples: Sequence[Sample], generator: torch.Generator) -> Exercise:
    """Return masks of noisy copies, each with its own token as target."""
    rows = noisy_rows(recipe, stage, samples, generator)
    return Exercise(rows.inputs, rows.positions, attention(rows), rows.masked, rows.targets[rows.masked])


def shifted_blocks(recipe: Recipe, stage: Stage, samples: Sequence[Sample], generator: torch.Generator) -> Exercise:
    """Return an exercise in which places before masks predict the masked token, and the last place
    of a clean block the next block's first token."""
    grid = grid_of(recipe)
    rows = lay_out(samples, grid, width=rounded(max(row_width(sample, grid) for sample in samples)))
    cursor = bool(torch.rand((), generator=generator) < stage.cursor_share)
    masked, counted = sub_block_masks(rows, samples, generator, block_size=grid.block_size, unit=BLOCK_SIZE, cursor=cursor)
    after = rows.positions + 1
    opens = (rows.copy == CLEAN) & (after % grid.block_size == 0) & (after >= prompt_lengths(samples))
    # A masked place is never the first of its copy, so the place before it holds the position
    # before it.
    predicted = counted.roll(-1, dims=1) | opens
    inputs = torch.where(masked, MASK_ID, rows.targets)
    return Exercise(inputs, rows.positions, attention(rows), predicted, following(rows, samples, grid)[predicted])


def joint_blocks(samples: Sequence[Sample], generator: torch.Generator) -> tuple[Exercise, Tensor]:
    """Return an exercise and the weight of each of its answers, float [n].

    Clean places predict the next token of the answer; masks of noisy blocks predict their own token.
    """
    origin = torch.randint(BLOCK_SIZE, (len(samples), COPIES), generator=generator)
    width = rounded(max(causal_width(sample, BLOCK_SIZE) for sample in samples))
    rows = lay_out_causal(samples, origin, block_size=BLOCK_SIZE, width=width)
    masked, level = draft_masks(rows, generator, block_size=BLOCK_SIZE)
    clean = rows.copy == CLEAN
    # The place after a clean place holds the next position, except after the last clean place.
    continues = clean & clean.roll(-1, dims=1) & (rows.positions + 1 >= prompt_lengths(samples))
    predicted = masked | continues
    answers = torch.where(clean, rows.targets.roll(-1, dims=1), rows.targets)[predicted]
    weights = torch.where(clean, 1.0, DRAFT_WEIGHT / level)[predicted]
    inputs = torch.where(masked, MASK_ID, rows.targets)
    return Exercise(inputs, rows.positions, attention(rows), predicted, answers), weights


def masked_canvas(stage: Stage, samples: Sequence[Sample], generator: torch.Generator) -> Exercise:
    """Return masks of a canvas, each with its own token as target; all canvases of a batch have one
    length."""
    length = int(torch.randint(SHORTEST_CANVAS, LONGEST_CANVAS + 1, (), generator=generator))
    width = rounded(max(len(sample.prompt) for sample in samples) + length)
    rows = lay_out_canvases(samples, length, width=width)
    cursor = bool(torch.rand((), generator=generator) < stage.cursor_share)
    masked, counted = canvas_masks(rows, samples, generator, unit=BLOCK_SIZE, cursor=cursor)
    inputs = torch.where(masked, MASK_ID, rows.targets)
    return Exercise(inputs, rows.positions, attention(rows), counted, rows.targets[counted])


def _joint_loss(model: Qwen3ForCausalLM, samples: Sequence[Sample], generator: torch.Generator) -> Tensor:
    """Return the weighted loss of predicting the next token and the masked tokens of blocks."""
    exercise, weights = joint_blocks(samples, generator)
    task = exercise.to(model.device)
    logits = logits_at(model, task.inputs, task.positions, task.seen, task.predicted)
    losses = nn.functional.cross_entropy(logits.float(), task.answers, reduction="none")
    return (losses * weights.to(model.device)).mean()


def _edit_loss(
    recipe: Recipe, stage: Stage, model: Qwen3ForCausalLM, samples: Sequence[Sample], generator: torch.Generator
) -> Tensor:
    """Return the loss of restoring every answer token from masks, the model's own predictions and a
    few random tokens."""
    rows = noisy_rows(recipe, stage, samples, generator)
    predicted = answer_places(rows, samples)
    task = Exercise(rows.inputs, rows.positions, attention(rows), predicted, rows.targets[predicted]).to(model.device)
    draws = Draws.draw(rows, generator, model.device)
    masked = rows.masked.to(model.device)
    with torch.no_grad():
        logits = logits_at(model, task.inputs, task.positions, task.seen, masked).float()
    inputs, probability = _fill(task.inputs, masked, logits, draws)
    inputs = torch.where(task.predicted & (draws.random >= 0), draws.random, inputs)
    read = soft_embeddings(model, inputs, probability) if draws.soft else inputs
    logits = logits_at(model, read, task.positions, task.seen, task.predicted)
    losses = nn.functional.cross_entropy(logits.float(), task.answers, reduction="none")
    weights = torch.where(inputs[task.predicted] == task.answers, KEPT_WEIGHT, 1.0)
    return (losses * weights).sum() / weights.sum()


def _fill(inputs: Tensor, masked: Tensor, logits: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """Fill some masks with the tokens of `logits` [n, vocabulary]. Return the new ids, and the
    probabilities of the filled ones."""
    logits[:, : MASK_ID + 1] = -torch.inf
    probabilities = logits.softmax(-1)
    sampled = (probabilities.cumsum(-1) < draws.token[masked][:, None]).sum(-1).clamp(max=len(VOCABULARY) - 1)
    own = torch.where(draws.greedy[masked], probabilities.argmax(-1), sampled)
    sure = probabilities.gather(-1, own[:, None])[:, 0]
    level = draws.level[masked]
    filled = torch.where(draws.by_confidence[masked], sure > level, draws.fill[masked] < level)
    ids, probability = inputs.clone(), torch.ones(inputs.shape, device=inputs.device)
    ids[masked] = torch.where(filled, own, MASK_ID)
    probability[masked] = torch.where(filled, sure, 1.0)
    return ids, probability


def _kernels(device: torch.device) -> AbstractContextManager[object]:
    """Return a context that selects plain attention on a CPU: the backward pass of the fused one is
    slow at this size, which makes a step a third longer."""
    return sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext()
