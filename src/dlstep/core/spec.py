"""Facts of the model, and ways of training it that decide which strategies can decode it."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Interval

from .checks import Texts, check_ranges
from .errors import Refusal, Refused

LARGEST = (1 << 31) - 1  # devices count in 32 bits
PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Interval(gt=0.0, lt=float("inf"))]
NonNegativeFloat = Annotated[float, Interval(ge=0.0, lt=float("inf"))]
Share = Annotated[float, Interval(gt=0.0, le=1.0)]
Ids = tuple[int, ...]  # of tokens
Positions = tuple[int, ...]  # in a sequence, or indices in a span
Pages = tuple[int, ...]  # numbers of KV cache pages
SeqIds = tuple[int, ...]
Probabilities = tuple[float, ...]
Pins = tuple[tuple[int, int], ...]  # (offset in the answer, token id) pairs, sorted by offset
AcceptRule = Literal["A", "B"]
Count = Annotated[int, Interval(ge=1, le=LARGEST)]
Seats = Annotated[int, Interval(ge=1, le=1 << 20)]  # each seat takes memory
Length = Annotated[int, Interval(ge=2, le=LARGEST)]


@dataclass(frozen=True, slots=True)
class Spec:
    """Facts of a model.

    Raises:
        Refused: For a field that is out of range or contradicts another one.
    """

    mask_id: Annotated[int, Interval(ge=0, le=LARGEST)] | None
    """Token id of the mask. None: a uniform-state model, whose masked positions hold random ids."""
    eos_ids: Ids
    """Ids that end an answer."""
    vocab_size: Count
    """Number of ids of the tokenizer. Later ids and `mask_id` are never sampled."""
    head_shift: Literal[0, 1] = 0
    """With 1, row p-1 of the network predicts position p (Dream and derived models)."""
    accept_rule: AcceptRule = "A"
    """When a block must advance: "A" once the previous block is semi-complete, "B" always (Stable-DiffCoder)."""
    pieces: tuple[bytes, ...] = field(default=(), repr=False)  # one per id: too long to show
    """The bytes of each id, which stop strings need; empty without a tokenizer."""
    canvas_length: Count | None = None
    """Positions of each canvas that the network denoises; None: it denoises no canvas, or canvases of any length."""
    fingerprint: str = ""
    """Hash of configuration, weights and dtypes; empty without a network."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.mask_id in self.eos_ids:
            raise Refused("mask_id", "conflict", f"{self.mask_id} is also in eos_ids={self.eos_ids}: they must differ")
        if self.canvas_length is not None and self.mask_id is not None:
            raise Refused(
                "canvas_length", "conflict", "a network with a mask token denoises no canvas: leave canvas_length out"
            )
        if self.pieces and len(self.pieces) < self.vocab_size:
            raise Refused(
                "pieces",
                "conflict",
                f"must be empty or have bytes for each of vocab_size={self.vocab_size} ids, got {len(self.pieces)}",
            )


BLOCK_CAUSAL = "block-causal"
EDITS = "block-causal, corrects tokens"
PROMPT_IN_FULL = "prompt in full, blocks causal"
SUB_BLOCKS = "block-causal, shifted head, sub-blocks"
BIDIRECTIONAL = "bidirectional"
RESIZES = "bidirectional, changes lengths"
CAUSAL = "strictly causal, shifted head"
JOINT = "causal and bidirectional in blocks"
REORDERED = "strictly causal, tokens before masks"
WINDOWS = "causal, windows joint, shifted head"
RANDOM_CANVAS = "canvas of random tokens"

# Ways of training, and this package's strategies for each, the preferred one first.
TRAININGS: dict[str, Texts] = {
    BLOCK_CAUSAL: ("multi_bd", "d2f"),
    EDITS: ("multi_bd_edit", "dmax", "multi_bd"),
    PROMPT_IN_FULL: ("d2f", "multi_bd"),
    SUB_BLOCKS: ("fast_dllm_v2", "multi_bd"),
    BIDIRECTIONAL: ("dual_cache", "d2f"),
    RESIZES: ("dreamon",),
    CAUSAL: ("strided", "autoregressive"),
    JOINT: ("causal_blocks", "self_speculation", "autoregressive"),
    REORDERED: ("wedlm",),
    WINDOWS: ("sdlm",),
    RANDOM_CANVAS: ("diffusion_gemma",),
}


def refusal_of_training(strategy: str | None, training: str | None) -> Refusal | None:
    """Return why a strategy cannot decode a network with this training; None if it can.

    Also None for a network without a declared training and for a user-defined strategy.
    """
    if training is None or all(strategy not in able for able in TRAININGS.values()):
        return None
    able = TRAININGS[training]
    message = f"it was trained {training}, which {', '.join(able)} can decode: give one of these"
    return None if strategy in able else Refusal("decoding_strategy", "unsupported", message)
