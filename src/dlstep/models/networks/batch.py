"""The input of a forward: packed rows, what they see, and the memory that they read and write."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor

from dlstep_kernels import AttentionLayout, SamplerConfig, Settings, SoftRows
from dlstep_kernels.tiles import Tiles

from ...core.soft import Merge

View = tuple[int | None, int]  # sliding window of a layer, and how many query heads share one of its key heads


@dataclass(frozen=True, slots=True)
class Carry:
    """Where each canvas of a denoising batch finds and leaves what it carries.

    Every carry slot has two places, for even and for odd draws: what a draw leaves lies where the next one finds it and
    where it does not look itself, so that a plan can be run again. A `fresh` canvas finds nothing. What is padding finds and
    leaves at place 0, which no slot has.
    """

    found: Int64[Tensor, " s"]
    left: Int64[Tensor, " s"]
    fresh: Int64[Tensor, " s"]


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward as tensors: `n` packed rows of which `w` positions are wanted.

    `slot_mapping` says where each row's keys and values go (-1: nowhere), `layouts` what it sees under each sliding window
    (None: full attention) with each number of query heads to a key head, `wanted` which rows predict the wanted positions, in
    the order of the plan; those from `filled` on are padding (None: there is none). `soft` are the rows whose embedding is a
    blend, None if there is none; `carry` is what canvases carry, None if there are none.
    """

    tokens: Int64[Tensor, "1 n"]
    positions: Int64[Tensor, "1 n"]
    slot_mapping: Int64[Tensor, " n"]
    layouts: Mapping[View, AttentionLayout | Tiles]
    wanted: Int64[Tensor, " w"]
    settings: Settings
    sampler: SamplerConfig
    soft: SoftRows | None = None
    carry: Carry | None = None
    filled: Int64[Tensor, "1"] | None = None


def batch_of(
    tensors: Mapping[str, Tensor], layouts: Mapping[View, AttentionLayout | Tiles], sampler: SamplerConfig, merge: Merge | None
) -> Batch:
    """Return the batch of these tensors by name; `merge` says how soft rows are blended, None if there are none."""
    soft = None
    if merge is not None:
        rows = tensors["soft_rows"]  # a row of -1 is padding
        ids, probabilities = (tensors[name].view(len(rows), -1) for name in ("soft_ids", "soft_probabilities"))
        residuals = tensors["soft_residuals"]
        soft = SoftRows(rows, ids, probabilities, residuals, merge.mode, merge.renormalize, merge.weight)
    return Batch(
        tokens=tensors["tokens"][None],
        positions=tensors["positions"][None],
        slot_mapping=tensors["slot_mapping"],
        layouts=layouts,
        wanted=tensors["wanted"],
        settings=Settings.of(tensors, len(tensors["wanted"])),
        sampler=sampler,
        soft=soft,
        carry=Carry(tensors["found"], tensors["left"], tensors["fresh"]) if "found" in tensors else None,
        filled=tensors.get("filled"),
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """Pages of keys and values for each layer, and places for what canvases carry to their next forward."""

    key_pages: tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]
    value_pages: tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]
    carried: Float[Tensor, "places canvas hidden"]

    def copy(self, other: "Memory") -> None:
        """Hold what `other` holds, which is as large."""
        mine, theirs = [(*each.key_pages, *each.value_pages, each.carried) for each in (self, other)]
        for own, its in zip(mine, theirs, strict=True):
            own.copy_(its)
