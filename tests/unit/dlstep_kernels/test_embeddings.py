"""Soft inputs: what must hold of every blend."""

from dataclasses import fields, replace

import torch
from hypothesis import given, settings, strategies as st
from torch.nn.functional import pad

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


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), widths=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_blend_is_equal_to_the_bit_among_rows_of_more_ids_and_other_formulas(seed, widths):
    generator = torch.Generator().manual_seed(seed)
    table, most = torch.randn(11, 16, generator=generator), max(widths)

    def drawn(row, width):
        ids, shares = torch.randint(0, 11, (1, width), generator=generator), torch.rand(1, width, generator=generator)
        mode, factor = torch.randint(0, 3, (1,), generator=generator), torch.rand(1, generator=generator)
        return SoftRows(torch.tensor([row]), ids, shares, mode, factor)

    alone = [drawn(row, width) for row, width in enumerate(widths)]
    parts = [
        replace(one, **{name: pad(getattr(one, name), (0, most - one.ids.shape[1])) for name in ("ids", "probabilities")})
        for one in alone
    ]
    together = SoftRows(*(torch.cat([getattr(one, field.name) for one in parts]) for field in fields(SoftRows)))
    merged = merge_embeddings(table, table, 3, together)
    for row, one in enumerate(alone):
        assert torch.equal(merged[row], merge_embeddings(table, table, 3, one)[row])
