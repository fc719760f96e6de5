"""Facts of the model and budgets of the engine, which every decision depends on."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval

from .checks import check_ranges
from .request import Seed

AcceptRule = Literal["A", "B"]
Count = Annotated[int, Interval(ge=1, le=(1 << 31) - 1)]  # what devices count in 32 bits
Seats = Annotated[int, Interval(ge=1, le=1 << 20)]  # each takes memory of its own
Length = Annotated[int, Interval(ge=2, le=(1 << 31) - 1)]


@dataclass(frozen=True, slots=True)
class Spec:
    """Facts of a model, as data.

    `vocab_size` counts the ids the tokenizer knows: ids past it and `mask_id` are never sampled. `mask_id` None is a
    uniform-state model, whose undecided positions hold random ids. `head_shift` 1 means that
    row p-1 of the network predicts position p (Dream and its relatives). `accept_rule` "A" forces a token of a block only
    when the block before it is semi-complete, "B" always (Stable-DiffCoder). `pieces` are the bytes of each id, for stop
    strings; empty when the tokenizer is not known. `fingerprint` tells the configuration, weights and dtype of the network
    apart from others; empty where there are none.
    """

    mask_id: Annotated[int, Interval(ge=0, le=(1 << 31) - 1)] | None
    eos_ids: tuple[int, ...]
    vocab_size: Count
    head_shift: Literal[0, 1] = 0
    accept_rule: AcceptRule = "A"
    pieces: tuple[bytes, ...] = field(default=(), repr=False)  # one for each id: nobody reads them
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
        """Notebooks and Hypothesis show `repr`, not all fields."""
        del cycle
        printer.text(repr(self))


@dataclass(frozen=True, slots=True)
class Config:
    """Budgets of the engine and the facts of its model.

    `max_num_batched_tokens` bounds the rows fed by one forward, `max_num_reqs` the requests that hold pages at a time,
    `max_model_len` prompt plus answer. `num_pages` pages of `page_size` positions each are shared by all requests.
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
