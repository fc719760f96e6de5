"""Facts of the model and limits of the engine."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval

from .checks import check_ranges
from .request import Seed

AcceptRule = Literal["A", "B"]
Count = Annotated[int, Interval(ge=1, le=(1 << 31) - 1)]  # devices count in 32 bits
Seats = Annotated[int, Interval(ge=1, le=1 << 20)]  # each seat takes memory
Length = Annotated[int, Interval(ge=2, le=(1 << 31) - 1)]


@dataclass(frozen=True, slots=True)
class Spec:
    """Facts of a model.

    `vocab_size` counts the tokenizer's ids: later ids and `mask_id` are never sampled. A `mask_id`
    of None is a uniform-state model, whose masked positions hold random ids. With `head_shift`
    1, row p-1 of the network predicts position p (Dream and derived models). `accept_rule` "A"
    forces a token of a block only if the previous block is semi-complete, "B" always
    (Stable-DiffCoder). `pieces` are the bytes of each id, for stop strings; empty without a
    tokenizer. `fingerprint` identifies configuration, weights and dtype; empty without a network.
    """

    mask_id: Annotated[int, Interval(ge=0, le=(1 << 31) - 1)] | None
    eos_ids: tuple[int, ...]
    vocab_size: Count
    head_shift: Literal[0, 1] = 0
    accept_rule: AcceptRule = "A"
    pieces: tuple[bytes, ...] = field(default=(), repr=False)  # one per id: too long to show
    fingerprint: str = ""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.mask_id in self.eos_ids:
            raise ValueError(f"Spec.mask_id {self.mask_id} is also in Spec.eos_ids {self.eos_ids}: they must differ")
        if self.pieces and len(self.pieces) < self.vocab_size:
            raise ValueError(
                f"Spec.pieces must be empty or have bytes for each of vocab_size={self.vocab_size} ids, got {len(self.pieces)}"
            )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print `repr`, which leaves out some fields, in notebooks and Hypothesis."""
        del cycle
        printer.text(repr(self))


@dataclass(frozen=True, slots=True)
class Config:
    """Limits of the engine, and the facts of its model.

    `max_num_batched_tokens` limits the rows of a pass, `max_num_reqs` the requests with pages, and
    `max_model_len` prompt plus answer. All share `num_pages` pages of `page_size` positions.
    """

    spec: Spec
    page_size: Count = 32
    num_pages: Count = 256
    max_model_len: Length = 2048
    max_num_batched_tokens: Count = 4096
    max_num_reqs: Seats = 128
    enable_prefix_caching: bool = True
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_ranges(self)
