"""The tiny models and how they are trained, as plain data.

A recipe's numbers are what the shipped checkpoint was trained with; changing one means training
that model again.
"""

from dataclasses import dataclass
from typing import Literal

from dlstep.core.spec import BIDIRECTIONAL, BLOCK_CAUSAL, EDITS, JOINT, PROMPT_IN_FULL, RANDOM_CANVAS, SUB_BLOCKS

BLOCK_SIZE = 8
BUFFER_SIZE = 4
CANVAS_LENGTH = 32  # of a canvas of random tokens

# What a model is taught: masked blocks; to correct its own tokens too; to predict the next
# position's token, sub-block by sub-block; masked blocks and, with the same weights, the next token
# with causal attention; masked blocks of a fixed canvas seen in full; a canvas of random tokens.
Lesson = Literal["blocks", "edits", "shifted", "joint", "masked canvas", "random canvas"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A run of steps with one mixture of noise; the learning rate runs in a line between its two
    factors."""

    name: str
    steps: int
    rate_start: float
    rate_stop: float
    multi_block_share: float = 0.0  # of the batches; the others hold each block alone
    cursor_share: float = 0.0  # of the batches; in the others masks lie anywhere


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model: its grid, what it learns, where its weights start, and the stages in order."""

    name: str
    grid: Literal["absolute", "prompt"]
    decoding_strategy: Literal[
        "multi_bd", "d2f", "multi_bd_edit", "fast_dllm_v2", "causal_blocks", "dual_cache", "diffusion_gemma"
    ]
    stages: tuple[Stage, ...]
    lesson: Lesson = "blocks"
    starts_from: str | None = None  # a shipped model, or None for fresh weights
    batch_places: int = 3840  # places of a batch, padding included
    spare_block_share: float = 0.1  # of the stories; those end in further blocks of the end symbol, as many as may fly
    muon_rate: float = 6e-3
    adam_rate: float = 2e-3
    warm_up_steps: int = 50
    precision: Literal["bfloat16", "float32"] = "bfloat16"  # of autocast and of Muon's iteration
    summary: str = ""

    @property
    def training(self) -> str:
        """Return the name that decoders have for this way of training."""
        of_lesson = {
            "edits": EDITS,
            "shifted": SUB_BLOCKS,
            "joint": JOINT,
            "masked canvas": BIDIRECTIONAL,
            "random canvas": RANDOM_CANVAS,
        }
        plain = PROMPT_IN_FULL if self.grid == "prompt" else BLOCK_CAUSAL
        return of_lesson.get(self.lesson, plain)

    @property
    def steps(self) -> int:
        """Return the number of steps of all stages together."""
        return sum(stage.steps for stage in self.stages)

    def place(self, step: int) -> tuple[Stage, float]:
        """Return the stage of a step, counted from 0, and the factor on the learning rates there.

        Raises ValueError past the last step.
        """
        begin = 0
        for stage in self.stages:
            if step < begin + stage.steps:
                share = (step - begin) / stage.steps
                factor = stage.rate_start + (stage.rate_stop - stage.rate_start) * share
                return stage, factor * min(1.0, (step + 1) / self.warm_up_steps)
            begin += stage.steps
        raise ValueError(f"step {step} of {self.name} is past the last of its {begin} steps")


TINY_BD = Recipe(
    name="tiny-bd",
    grid="absolute",
    decoding_strategy="multi_bd",
    summary="block diffusion on the absolute grid, several blocks in flight",
    stages=(
        Stage("base, constant rate", 1500, 1.0, 1.0, 0.0),
        Stage("base, falling rate", 2000, 1.0, 0.4, 0.0),
        Stage("several blocks", 1500, 0.4, 0.02, 0.65),
    ),
)

TINY_D2F = Recipe(
    name="tiny-d2f",
    grid="prompt",
    decoding_strategy="d2f",
    summary="the prompt seen in full, blocks counted from its end, several blocks in flight",
    starts_from="tiny-bd",
    stages=(
        Stage("new grid", 600, 0.5, 0.5, 0.5),
        Stage("falling rate", 1000, 0.5, 0.02, 0.65),
    ),
)

TINY_EDIT = Recipe(
    name="tiny-edit",
    grid="absolute",
    decoding_strategy="multi_bd_edit",
    lesson="edits",
    summary="block diffusion on the absolute grid that also corrects wrong tokens, several blocks in flight",
    starts_from="tiny-bd",
    stages=(
        Stage("own tokens", 1200, 0.4, 0.4, 0.5),
        Stage("falling rate", 2800, 0.4, 0.02, 0.5),
    ),
)

TINY_FDV2 = Recipe(
    name="tiny-fdv2",
    grid="absolute",
    decoding_strategy="fast_dllm_v2",
    lesson="shifted",
    summary="each position predicts the next one's token; blocks of 32 are filled in sub-blocks of 8",
    starts_from="tiny-bd",
    spare_block_share=0.0,
    stages=(
        Stage("shifted head", 2500, 0.7, 0.7, cursor_share=0.6),
        Stage("falling rate", 4500, 0.7, 0.02, cursor_share=0.8),
    ),
)

TINY_JOINT = Recipe(
    name="tiny-joint",
    grid="prompt",
    decoding_strategy="causal_blocks",
    lesson="joint",
    summary="next-token prediction and, with the same weights, block diffusion in blocks that begin at any position",
    starts_from="tiny-bd",
    spare_block_share=0.0,
    precision="float32",
    stages=(
        Stage("new rows", 800, 0.7, 0.7),
        Stage("falling rate", 1700, 0.7, 0.02),
    ),
)

TINY_LLADA = Recipe(
    name="tiny-llada",
    grid="prompt",
    decoding_strategy="dual_cache",
    lesson="masked canvas",
    summary="prompt and answer see each other in full on a canvas of fixed length, filled block by block",
    starts_from="tiny-bd",
    spare_block_share=0.0,
    stages=(
        Stage("full attention", 3000, 0.7, 0.7, cursor_share=0.6),
        Stage("falling rate", 7000, 0.7, 0.02, cursor_share=0.8),
    ),
)

TINY_CANVAS = Recipe(
    name="tiny-canvas",
    grid="prompt",
    decoding_strategy="diffusion_gemma",
    lesson="random canvas",
    summary="a canvas of random tokens is refined as a whole, each step seeing the one before through self-conditioning",
    spare_block_share=0.0,
    batch_places=20480,
    stages=(
        Stage("constant rate", 1400, 1.0, 1.0),
        Stage("falling rate", 2200, 1.0, 0.02),
        Stage("again", 884, 0.5, 0.5),
        Stage("falling again", 1642, 0.5, 0.0),
    ),
)

_ALL = (TINY_BD, TINY_D2F, TINY_EDIT, TINY_FDV2, TINY_JOINT, TINY_LLADA, TINY_CANVAS)
RECIPES = {recipe.name: recipe for recipe in _ALL}
