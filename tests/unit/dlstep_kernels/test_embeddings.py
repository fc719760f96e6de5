"""Soft inputs: what must hold of every blend."""

import torch
from hypothesis import given, settings, strategies as st

from dlstep_kernels import SoftRows, merge_embeddings
from dlstep_kernels.embeddings import ADDED, RENORMALIZED

from ...helpers.sampling_checks import check_merge


def test_what_cancels_out_stays_zero():
    table = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    half = SoftRows(*map(torch.tensor, ([0], [[0]], [[0.5]], [RENORMALIZED], [0.5])))
    assert merge_embeddings(table[:1], table, 1, half).tolist() == [[0.0, 0.0]]


def blended_one_by_one(embedded, table, mask_id, soft):
    """The rows with their blends, in double precision."""
    merged, table = embedded.clone(), table.double()
    for row, ids, shares, mode, factor in zip(soft.rows, soft.ids, soft.probabilities, soft.modes, soft.factors, strict=True):
        parts = [*zip(shares.double(), table[ids], strict=True), (factor.double(), table[mask_id])]
        total = sum(share * vector for share, vector in parts)
        if mode == ADDED:
            total = embedded[row].double() + factor * sum(share * vector for share, vector in parts[:-1])
        if mode == RENORMALIZED:
            total = total * sum(share * vector.norm() for share, vector in parts) / total.norm().clamp(min=1e-12)
        merged[row] = total
    return merged


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3), dtype=st.sampled_from((torch.float32, torch.bfloat16)))
def test_blends_are_those_of_a_loop(seed, count, dtype):
    sizes = {"ids": 11, "total": 9, "blended": 4, "count": count, "width": 16}
    check_merge(merge_embeddings, blended_one_by_one, seed, dtype=dtype, **sizes)
