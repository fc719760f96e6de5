"""The input of a forward pass: packed rows, what they see, and the memory that they use."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float, Int32, Int64
from torch import Tensor

from dlstep_kernels import AttentionLayout, SamplerConfig, Settings, SoftRows
from dlstep_kernels.tiles import Tiles

from ...core.soft import Merge

View = tuple[int | None, int]  # sliding window (None: full), query heads per key head


@dataclass(frozen=True, slots=True)
class Carry:
    """Indices of the carried state that each canvas of a denoising batch reads and writes.

    A carry slot has two places, for even and odd draws. A draw reads one and writes the other, so
    that a plan can be run again. A `fresh` canvas reads zeros. Place 0 is for padding.
    """

    found: Int64[Tensor, " s"]
    left: Int64[Tensor, " s"]
    fresh: Int64[Tensor, " s"]


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass as tensors: `n` packed rows, `w` sampled positions.

    `slot_mapping` is where each row's keys and values go (-1: nowhere), `layouts` what rows see, by
    view. `sampled_rows` are the rows that predict the sampled positions, in plan order; entries
    from `filled` on are padding. `soft` are rows with blended embeddings, `carry` is canvas state.
    `gates` has 1 for each row of a draft and 0 for other rows; None if the network has no adapter for drafts.
    """

    tokens: Int64[Tensor, "1 n"]
    positions: Int64[Tensor, "1 n"]
    slot_mapping: Int64[Tensor, " n"]
    layouts: Mapping[View, AttentionLayout | Tiles]
    sampled_rows: Int64[Tensor, " w"]
    settings: Settings
    sampler: SamplerConfig
    soft: SoftRows | None = None
    carry: Carry | None = None
    filled: Int64[Tensor, "1"] | None = None
    gates: Int64[Tensor, " n"] | None = None


def batch_of(
    tensors: Mapping[str, Tensor],
    layouts: Mapping[View, AttentionLayout | Tiles],
    sampler: SamplerConfig,
    merge: Merge | None,
    mask_words: Int32[Tensor, "rows words"] | None = None,
) -> Batch:
    """Return the batch of these named tensors; `merge` is the rule for soft rows, if any.

    `mask_words` are the token masks that `mask_rows` refers to.
    """
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
        sampled_rows=tensors["sampled_rows"],
        settings=Settings.of(tensors, len(tensors["sampled_rows"]), mask_words),
        sampler=sampler,
        soft=soft,
        carry=Carry(tensors["found"], tensors["left"], tensors["fresh"]) if "found" in tensors else None,
        filled=tensors.get("filled"),
        gates=tensors.get("gates"),
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """KV cache pages of each layer, and state that canvases carry to their next forward pass."""

    key_pages: tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]
    value_pages: tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]
    carried: Float[Tensor, "places canvas hidden"]

    def copy(self, other: "Memory") -> None:
        """Copy the content of `other`, which must have the same sizes."""
        mine, theirs = [(*each.key_pages, *each.value_pages, each.carried) for each in (self, other)]
        for own, its in zip(mine, theirs, strict=True):
            own.copy_(its)
