"""Shards of the vocabulary: each rank of a group computes the logits of one shard."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

Exchange = Callable[[Tensor], list[Tensor]]  # returns the tensors of all ranks, in rank order


@dataclass(frozen=True, slots=True)
class VocabularyShard:
    """The ids of one rank: `count` of `total` ids, from `first` on. No rank has more than `most`."""

    first: int
    count: int
    total: int
    most: int


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part in a result for all ids: the ids of its weights, and its exchange."""

    cut: VocabularyShard
    exchange: Exchange


def cut_of(total: int, rank: int, size: int) -> VocabularyShard:
    """Return the ids of rank `rank` of `size`; the last ranks may have fewer, or none.

    The first id is even, because kernels compute random numbers for pairs of ids.
    """
    most = min(2 * -(-total // (2 * size)), total)
    first = min(rank * most, total)
    return VocabularyShard(first, min(most, total - first), total, most)


def gather_columns(logits: Float[Tensor, "n own"], share: Share) -> Float[Tensor, "n total"]:
    """Return whole rows of logits from each rank's columns."""
    cut = share.cut
    return torch.cat(share.exchange(pad(logits, (0, cut.most - cut.count))), dim=1)[:, : cut.total]
